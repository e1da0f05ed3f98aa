// SPDX-License-Identifier: Apache-2.0
// Ends a test binary that stands still, and says in which test; linked into all of them. Without it only the limit of
// the whole run would end it, and name nothing.
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "slowness.h"

namespace braid::testing {
namespace {

// For a quiet machine. The longest takes 25 s under ThreadSanitizer with two cores shared, and 90 s where three others
// share them.
constexpr unsigned kSeconds = 400;

char running[256];

void give_up(int) {
  const auto say = [](const char* text) { return ::write(STDERR_FILENO, text, std::strlen(text)) >= 0; };
  if (say("\n*** STOOD STILL, and was ended: ") && say(running)) say("\n");
  std::abort();
}

class Watchdog final : public ::testing::EmptyTestEventListener {
  void OnTestStart(const ::testing::TestInfo& test) override {
    std::signal(SIGALRM, give_up);
    std::snprintf(running, sizeof running, "%s.%s", test.test_suite_name(), test.name());
    ::alarm(static_cast<unsigned>(kSeconds * slowness()));
  }
  void OnTestEnd(const ::testing::TestInfo&) override { ::alarm(0); }
};

const bool is_listening = [] {
  ::testing::UnitTest::GetInstance()->listeners().Append(new Watchdog);
  return true;
}();

}  // namespace
}  // namespace braid::testing

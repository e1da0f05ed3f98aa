// SPDX-License-Identifier: Apache-2.0
// The fuzzers' targets: each takes any bytes, feeds them to code that reads what others wrote, and checks what must
// hold then. libFuzzer calls them through entry.cc; tests/cpp/fuzz calls them over the corpora, with any compiler.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>

namespace braid::fuzz {

using Input = std::span<const uint8_t>;

void calls_target(Input input);
void codec_target(Input input);
void greeting_target(Input input);
void mailbox_target(Input input);
void peer_texts_target(Input input);
void topology_target(Input input);
void schedule_target(Input input);
void links_target(Input input);

// What must hold did not. An exception, so that a test can say which input it was; libFuzzer stops at it, too.
class Broken : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

inline void require(bool truth, const std::string& what) {
  if (!truth) throw Broken(what);
}

// Takes an input apart. At its end there are only zeros.
class Reader {
 public:
  explicit Reader(Input input) : rest_(input) {}

  bool empty() const { return rest_.empty(); }
  uint8_t byte() {
    if (rest_.empty()) return 0;
    const uint8_t first = rest_.front();
    rest_ = rest_.subspan(1);
    return first;
  }
  // Of so many things, the number of one. REQUIRES: 0 < count <= 256.
  size_t one_of(size_t count) { return byte() % count; }
  Input take(size_t bytes) {
    const Input taken = rest_.first(std::min(bytes, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  std::string text() {
    const Input all = take(rest_.size());
    return {all.begin(), all.end()};
  }

 private:
  Input rest_;
};

}  // namespace braid::fuzz

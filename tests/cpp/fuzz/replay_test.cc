// SPDX-License-Identifier: Apache-2.0
// The fuzzers' targets without a fuzzer, so with any compiler: each over its corpus, and over inputs made of that by a few
// changes, the same ones in every run.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "fuzz/targets.h"

namespace braid::testing {
namespace {

using Bytes8 = std::vector<uint8_t>;

struct Subject {
  const char* name;
  void (*run)(fuzz::Input);
  int changed_inputs;  // about a second of them
};

constexpr Subject kSubjects[] = {
    {"peer_texts", fuzz::peer_texts_target, 10000}, {"codec", fuzz::codec_target, 10000},
    {"greeting", fuzz::greeting_target, 3000},      {"links", fuzz::links_target, 1000},
    {"mailbox", fuzz::mailbox_target, 10000},       {"schedule", fuzz::schedule_target, 4000},
    {"topology", fuzz::topology_target, 4000},      {"calls", fuzz::calls_target, 4000},
};

std::vector<Bytes8> corpus_of(const std::string& name) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(std::string(BRAID_CORPUS_DIR) + "/" + name)) {
    paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());  // folders have no order of their own
  std::vector<Bytes8> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

class Mutator {
 public:
  explicit Mutator(const std::vector<Bytes8>& corpus) : corpus_(corpus) {}

  Bytes8 next() {
    Bytes8 input = any();
    for (size_t changes = 1 + below(4); changes > 0; --changes) change(input);
    return input;
  }

 private:
  size_t below(size_t limit) { return random_() % limit; }
  const Bytes8& any() { return corpus_[below(corpus_.size())]; }
  // Somewhere in it, the end included.
  Bytes8::iterator place(Bytes8& input) { return input.begin() + static_cast<ptrdiff_t>(below(input.size() + 1)); }

  void change(Bytes8& input) {
    const auto at = place(input);
    const auto rest = static_cast<size_t>(input.end() - at);
    switch (below(6)) {
      case 0:
        if (rest > 0) *at = static_cast<uint8_t>(random_());
        break;
      case 1:
        if (rest > 0) *at ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 2: input.insert(at, static_cast<uint8_t>(random_())); break;
      case 3: input.erase(at, at + static_cast<ptrdiff_t>(std::min(rest, 1 + below(8)))); break;
      case 4: input.erase(at, input.end()); break;
      case 5: {  // the end of another one behind the beginning of this
        Bytes8 other = any();
        input.erase(at, input.end());
        input.insert(input.end(), place(other), other.end());
        break;
      }
    }
  }

  const std::vector<Bytes8>& corpus_;
  std::mt19937 random_{1};
};

// Where a fuzzer can be given it.
std::string keep(const Bytes8& input, const std::string& name) {
  const std::string path = ::testing::TempDir() + "braid_" + name + "_input";
  std::ofstream(path, std::ios::binary).write(reinterpret_cast<const char*>(input.data()), std::ssize(input));
  return path;
}

class Replay : public ::testing::TestWithParam<Subject> {
 protected:
  void run(const Bytes8& input) {
    try {
      GetParam().run(input);
    } catch (const fuzz::Broken& broken) {
      FAIL() << "does not hold: " << broken.what() << "\nthe input is in " << keep(input, GetParam().name);
    }
  }
};

TEST_P(Replay, HoldsOverTheCorpus) {
  const std::vector<Bytes8> corpus = corpus_of(GetParam().name);
  ASSERT_FALSE(corpus.empty());
  for (const Bytes8& input : corpus) ASSERT_NO_FATAL_FAILURE(run(input));
  ASSERT_NO_FATAL_FAILURE(run({}));
}

TEST_P(Replay, HoldsOverChangedInputs) {
  const std::vector<Bytes8> corpus = corpus_of(GetParam().name);
  Mutator mutator(corpus);
  for (int i = 0; i < GetParam().changed_inputs; ++i) ASSERT_NO_FATAL_FAILURE(run(mutator.next()));
}

INSTANTIATE_TEST_SUITE_P(Fuzz, Replay, ::testing::ValuesIn(kSubjects),
                         [](const auto& subject) { return std::string(subject.param.name); });

// That the targets say so when something is wrong, and the test hears it.
TEST(FuzzTargets, SayWhatDoesNotHold) {
  EXPECT_NO_THROW(fuzz::require(true, "so it is"));
  EXPECT_THROW(fuzz::require(false, "it is not"), fuzz::Broken);
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
// How fast are the update rules beside a loop that reads and writes the same memory and computes nothing but an
// exclusive or? Prints GB/s (1e9 bytes, all that is read plus all that is written) for each instruction set that
// this CPU has, and the percentage of the loop's.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/instruction_set.h"
#include "bench/cpu_time.h"
#include "rules/rule.h"

namespace braid {
namespace {

template <class Work>
double seconds_of(Work work) {
  int calls = 0;
  const double start = cpu_seconds();
  double elapsed = 0;
  do {
    work();
    ++calls;
    elapsed = cpu_seconds() - start;
  } while (elapsed < 0.04);
  return elapsed / calls;
}

struct Free {
  void operator()(float* memory) const { std::free(memory); }
};
using Floats = std::unique_ptr<float, Free>;

Floats make_floats(size_t count) {
  Floats floats(static_cast<float*>(std::aligned_alloc(4096, count * sizeof(float))));
  std::fill_n(floats.get(), count, 0.01f);
  return floats;
}

// Reads kWritten + kRead vectors and writes the first kWritten.
template <int kWritten, int kRead>
void touch(uint32_t* const* vectors, size_t count) {
  uint32_t* of[kWritten + kRead];
  std::copy_n(vectors, kWritten + kRead, of);
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) {
    uint32_t read = 1;
    for (int k = kWritten; k < kWritten + kRead; ++k) read ^= of[k][i];
    for (int k = 0; k < kWritten; ++k) of[k][i] ^= read;
  }
}

struct Row {
  const char* name;
  const char* rule;
  RuleNumbers numbers;
  bool replaces_update = false;  // by the result
};
constexpr Row kRows[] = {
    {"add", "add", {}},
    {"elastic, e into update", "elastic", {}, true},
    {"sgd", "sgd", {.rate = 1e-6, .weight_decay = 1e-6}},
    {"sgd, values into update", "sgd", {.rate = 1e-6, .weight_decay = 1e-6}, true},
    {"sgd:compensates", "sgd:compensates", {.rate = 1e-6, .weight_decay = 1e-6, .lambda = 0.04}},
    {"sgd:momentum", "sgd:momentum", {.rate = 1e-6, .momentum = 0.9, .weight_decay = 1e-6}},
    {"sgd:momentum,nesterov", "sgd:momentum,nesterov", {.rate = 1e-6, .momentum = 0.9, .weight_decay = 1e-6}},
    {"adam", "adam", {.rate = 1e-6, .weight_decay = 1e-6}},
    {"adamw", "adamw", {.rate = 1e-6, .weight_decay = 1e-6}},
    {"adamw:amsgrad", "adamw:amsgrad", {.rate = 1e-6, .weight_decay = 1e-6}},
    {"delayed_nesterov, between", "delayed_nesterov:every=1000000", {.rate = 1e-6, .momentum = 0.9}},
    {"delayed_nesterov, momentum", "delayed_nesterov:every=1", {.rate = 1e-6, .momentum = 0.9}},
};
constexpr int kMostVectors = 6;

// Vectors that a rule uses, those that it writes first.
struct Streams {
  int written = 1, read = 1;

  explicit Streams(const Row& row, const RuleSpec& spec) {
    written += spec.every > 1 ? 1 : state_vectors(spec);
    if (row.replaces_update) {
      ++written;
      --read;
    }
    if (spec.compensates) ++read;
  }

  double bytes(size_t count) const { return 4.0 * static_cast<double>(count) * (2 * written + read); }

  void touch(uint32_t* const* of, size_t count) const {
    switch (10 * written + read) {
      case 11: return braid::touch<1, 1>(of, count);
      case 12: return braid::touch<1, 2>(of, count);
      case 20: return braid::touch<2, 0>(of, count);
      case 21: return braid::touch<2, 1>(of, count);
      case 31: return braid::touch<3, 1>(of, count);
      case 41: return braid::touch<4, 1>(of, count);
    }
    std::abort();
  }
};

void run(const Row& row, size_t count) {
  const RuleSpec spec = rule_from_text(row.rule).value();
  const Streams streams(row, spec);
  std::vector<Floats> memory;
  for (int i = 0; i < kMostVectors; ++i) memory.push_back(make_floats(count));
  float* const update = memory[1].get();
  const RuleMemory of{.values = memory[0].get(),
                      .update = update,
                      .state = {memory[2].get(), memory[3].get(), memory[4].get()},
                      .backup = spec.compensates ? memory[5].get() : nullptr,
                      .result = row.replaces_update ? update : nullptr,
                      .count = count};
  std::vector<Floats> others;
  std::vector<uint32_t*> words;
  for (int i = 0; i < streams.written + streams.read; ++i) {
    others.push_back(make_floats(count));
    words.push_back(reinterpret_cast<uint32_t*>(others.back().get()));
  }
  std::vector<std::string_view> names;
  for (const std::string_view name : {"baseline", "avx2", "avx512"}) {
    if (set_instruction_set(name)) names.push_back(name);
  }
  // The fastest of 9 rounds, in turn: what disturbs a round only makes it slower.
  double loop = 1e30;
  std::vector<double> best(names.size(), 1e30);
  uint64_t step = 1;
  for (int round = 0; round < 9; ++round) {
    loop = std::min(loop, seconds_of([&] { streams.touch(words.data(), count); }));
    for (size_t i = 0; i < names.size(); ++i) {
      set_instruction_set(names[i]);
      best[i] = std::min(best[i], seconds_of([&] { apply(spec, row.numbers, step++, 1.0f, of); }));
    }
  }
  const double gigabytes = 1e-9 * streams.bytes(count);
  std::printf("%6zu KiB  %-27s loop %5.1f", count / 256, row.name, gigabytes / loop);
  for (size_t i = 0; i < names.size(); ++i) {
    std::printf("  %s %5.1f (%3.0f %%)", names[i].data(), gigabytes / best[i], 100 * loop / best[i]);
  }
  std::printf("\n");
}

}  // namespace
}  // namespace braid

int main(int argc, char** argv) {
  const std::string_view only = argc > 1 ? argv[1] : "";
  for (const size_t kib : {size_t{64}, size_t{64} << 10}) {
    for (const braid::Row& row : braid::kRows) {
      if (std::string_view(row.name).starts_with(only)) braid::run(row, kib * 256);
    }
  }
}

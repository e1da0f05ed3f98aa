// SPDX-License-Identifier: Apache-2.0
#include "links/processor.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "codec/codec.h"
#include "links/three_digits.h"
#include "reduce/reduce.h"

namespace braid {
namespace {

// About the size of a chunk of one segment: operations reduce and code one such chunk at a time.
constexpr size_t kElements = size_t{1} << 16;
constexpr double kBytes = kElements * sizeof(float);
constexpr int kRuns = 4;  // the fastest run counts: other processes may use the core in some runs
// Each run uses other memory, as operations do: tensors and residuals are rarely in a core's own cache.
constexpr size_t kSlices = 16;

// Values of all magnitudes, as gradients have: the time of top-k depends on them.
std::vector<float> gradients() {
  std::vector<float> values(kElements * kSlices);
  uint32_t state = 1;
  for (size_t i = 0; i < kElements; ++i) {
    values[i] = 1;
    for (int factor = 0; factor < 2; ++factor) {
      state = state * 1664525u + 1013904223u;
      values[i] *= static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
  }
  for (size_t slice = 1; slice < kSlices; ++slice) {
    std::copy_n(values.begin(), kElements, values.begin() + static_cast<ptrdiff_t>(slice * kElements));
  }
  return values;
}

class Stopwatch {
 public:
  double reduce_s() {
    std::vector<float> sum(kElements);
    return fastest_s([&](const float* values, const float* others) {
      const std::array<const std::byte*, 2> sources = {bytes(values), bytes(others)};
      reduce(DType::kFloat32, ReduceOp::kSum, reinterpret_cast<std::byte*>(sum.data()), sources, kElements);
    });
  }

  double coding_s(const Codec& codec) {
    std::vector<std::byte> message(encoded_bytes(codec, kElements));
    const double encoding_s = fastest_s(
        [&](const float* values, float* residual) { encode(codec, values, kElements, 1, residual, 1, message); });
    const double decoding_s = fastest_s(
        [&](const float*, float* sum) { static_cast<void>(decode_add(codec, message, sum, kElements)); });
    return (encoding_s + decoding_s) / 2;
  }

 private:
  static const std::byte* bytes(const float* values) { return reinterpret_cast<const std::byte*>(values); }

  template <class Run>
  double fastest_s(const Run& run) {
    double best_s = std::numeric_limits<double>::max();
    for (int i = 0; i < kRuns; ++i) {
      const size_t at = slice_++ % kSlices * kElements;
      const auto begun = Clock::now();
      run(values_.data() + at, others_.data() + at);
      best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - begun).count());
    }
    return best_s;
  }

  const std::vector<float> values_ = gradients();
  std::vector<float> others_ = values_;
  size_t slice_ = 0;
};

Topology::Work measure() {
  Stopwatch watch;
  Topology::Work rates = {{"reduce", watch.reduce_s() / kBytes}};
  for (int kind = 0; kind < kCodecKindCount; ++kind) {
    const auto codec = static_cast<CodecKind>(kind);
    const std::string name(traits(codec).name);
    rates.emplace(name, watch.coding_s({codec, traits(codec).is_sparse ? 100u : 0u}) / kBytes);
    if (traits(codec).is_sparse) rates.emplace(name + "_1000", watch.coding_s({codec, 1000}) / kBytes);
  }
  for (auto& [work, s_per_byte] : rates) s_per_byte = with_three_digits(s_per_byte);
  return rates;
}

}  // namespace

const Topology::Work& processor_rates() {
  static const Topology::Work rates = measure();
  return rates;
}

Result<Topology::Work> slowest_of_all(ControlChannel& control, Node rank, int nodes, Topology::Work rates) {
  std::vector<double> mine;
  for (const auto& [work, s_per_byte] : rates) mine.push_back(s_per_byte);
  const auto bytes_of = [](std::vector<double>& numbers) { return std::as_writable_bytes(std::span(numbers)); };
  const auto told = control.consult(rank, nodes, bytes_of(mine), [&](const ControlChannel::Words& words) {
    std::vector<double> theirs(mine.size());
    for (const auto& word : words) {
      std::memcpy(theirs.data(), word.data(), word.size());
      std::transform(mine.begin(), mine.end(), theirs.begin(), mine.begin(),
                     [](double a, double b) { return std::max(a, b); });
    }
    const Bytes slowest = bytes_of(mine);
    return std::string(reinterpret_cast<const char*>(slowest.data()), slowest.size());
  });
  if (!told.ok()) return told.status();
  if (told.value().size() != mine.size() * sizeof(double)) {
    return Status(Code::kMismatch,
                  "the first rank measures other work than this one; it may run another braid version");
  }
  std::memcpy(mine.data(), told.value().data(), told.value().size());
  size_t i = 0;
  for (auto& [work, s_per_byte] : rates) s_per_byte = mine[i++];
  return rates;
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "communicator/processor.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <limits>
#include <span>

#include "base/clock.h"
#include "codec/codec.h"
#include "reduce/reduce.h"

namespace braid {
namespace {

// About what a chunk of one segment has, which is what is reduced and coded at a time.
constexpr size_t kElements = size_t{1} << 16;
constexpr double kBytes = kElements * sizeof(float);
constexpr int kRuns = 4;  // of which the fastest counts: others may have the core, too
constexpr uint32_t kEvery = 100;

using Floats = std::vector<float>;

template <class Run>
double fastest_s(const Run& run) {
  double best_s = std::numeric_limits<double>::max();
  for (int i = 0; i < kRuns; ++i) {
    const auto begun = Clock::now();
    run();
    best_s = std::min(best_s, std::chrono::duration<double>(Clock::now() - begun).count());
  }
  return best_s;
}

// Of all magnitudes, as gradients are: what top-k takes depends on it.
Floats gradients() {
  Floats values(kElements);
  uint32_t state = 1;
  for (float& value : values) {
    value = 1;
    for (int factor = 0; factor < 2; ++factor) {
      state = state * 1664525u + 1013904223u;
      value *= static_cast<float>(static_cast<int32_t>(state)) * 0x1p-31f;
    }
  }
  return values;
}

double reduce_s(const Floats& values) {
  const Floats other = values;
  Floats sum(kElements);
  const std::array<const std::byte*, 2> sources = {reinterpret_cast<const std::byte*>(values.data()),
                                                   reinterpret_cast<const std::byte*>(other.data())};
  return fastest_s([&] {
    reduce(DType::kFloat32, ReduceOp::kSum, reinterpret_cast<std::byte*>(sum.data()), sources, kElements);
  });
}

double coding_s(CodecKind kind, const Floats& values) {
  const Codec codec{kind, traits(kind).is_sparse ? kEvery : 0};
  Floats residual(kElements), sum(kElements);
  std::vector<std::byte> message(encoded_bytes(codec, kElements));
  const double encoding_s =
      fastest_s([&] { encode(codec, values.data(), kElements, 1, residual.data(), 1, message); });
  const double decoding_s =
      fastest_s([&] { static_cast<void>(decode_add(codec, message, sum.data(), kElements)); });
  return (encoding_s + decoding_s) / 2;
}

// More digits would only be noise, and have to be read.
double with_three_digits(double value) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific, 2);
  std::from_chars(text, end, value);
  return value;
}

Topology::Work measure() {
  const Floats values = gradients();
  Topology::Work rates = {{"reduce", reduce_s(values) / kBytes}};
  for (int kind = 0; kind < kCodecKindCount; ++kind) {
    const auto codec = static_cast<CodecKind>(kind);
    rates.emplace(traits(codec).name, coding_s(codec, values) / kBytes);
  }
  for (auto& [work, s_per_byte] : rates) s_per_byte = with_three_digits(s_per_byte);
  return rates;
}

}  // namespace

const Topology::Work& processor_rates() {
  static const Topology::Work rates = measure();
  return rates;
}

Result<Topology::Work> slowest_of_all(Parley& parley, Node rank, int nodes, Topology::Work rates) {
  std::vector<double> mine;
  for (const auto& [work, s_per_byte] : rates) mine.push_back(s_per_byte);
  const auto bytes_of = [](std::vector<double>& numbers) { return std::as_writable_bytes(std::span(numbers)); };
  const auto told = parley.consult(rank, nodes, bytes_of(mine), [&](const Parley::Words& words) {
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

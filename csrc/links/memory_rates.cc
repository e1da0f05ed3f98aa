// SPDX-License-Identifier: Apache-2.0
#include "links/memory_rates.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <sstream>
#include <vector>

#include "base/clock.h"
#include "base/copy.h"
#include "links/three_digits.h"

namespace braid {
namespace {

// Two blocks together are larger than a core's own cache: a message comes from the shared cache, too.
constexpr size_t kBlock = size_t{3} << 19;
constexpr size_t kPiece = size_t{128} << 10;
constexpr int kCopies = 6;

class CopyWatch {
 public:
  Topology::Work measure() {
    std::vector<double> touch, write_past, fresh;
    copy(nullptr);
    for (int run = 0; run < kCopies; ++run) copy(&touch);
    Topology::Work rates = {{"touch", usual(touch) / 2}};
#if defined(__SSE2__)
    for (int run = 0; run < kCopies; ++run) {
      leave_caches(&write_past);
      copy(&fresh);
    }
    // Both sides of a copy are fetched. Such a copy displaces only bytes that need no writing back, so that is added.
    // The maximum is for clocks that jump.
    const double fetch = (usual(fresh) - usual(touch)) / 2 + usual(write_past);
    rates.emplace("fetch", std::max(fetch, rates.at("touch")));
#endif
    for (auto& [work, s_per_byte] : rates) s_per_byte = with_three_digits(s_per_byte);
    return rates;
  }

 private:
  template <class Run>
  static void time(std::vector<double>* s_per_byte, const Run& run) {
    const auto begun = Clock::now();
    run();
    const double took_s = std::chrono::duration<double>(Clock::now() - begun).count();
    if (s_per_byte != nullptr) s_per_byte->push_back(took_s / kPiece);
  }

  void copy(std::vector<double>* s_per_byte) {
    for (size_t at = 0; at < kBlock; at += kPiece) {
      time(s_per_byte, [&] { copy_bytes(to_.data() + at, from_.data() + at, kPiece); });
    }
  }

  // What is written past the caches is in none of them.
  void leave_caches(std::vector<double>* s_per_byte) {
    for (std::vector<std::byte>* block : {&from_, &to_}) {
      for (size_t at = 0; at < kBlock; at += kPiece) {
        time(s_per_byte, [&] {
          stream_bytes(block->data() + at, piece_.data(), kPiece);
          end_of_stream();
        });
      }
    }
  }

  // The lower quartile: other processes only lengthen a time.
  static double usual(std::vector<double>& values) {
    const auto quarter = values.begin() + static_cast<ptrdiff_t>(values.size() / 4);
    std::nth_element(values.begin(), quarter, values.end());
    return *quarter;
  }

  std::vector<std::byte> from_ = std::vector<std::byte>(kBlock, std::byte{1});
  std::vector<std::byte> to_ = std::vector<std::byte>(kBlock, std::byte{2});
  std::vector<std::byte> piece_ = std::vector<std::byte>(kPiece, std::byte{3});
};

}  // namespace

const Topology::Work& memory_rates() {
  static const Topology::Work rates = CopyWatch().measure();
  return rates;
}

std::string memory_text(const Topology::Work& rates) {
  std::string text;
  for (const auto& [work, s_per_byte] : rates) {
    std::string number(32, '\0');
    number.resize(
        static_cast<size_t>(std::to_chars(number.data(), number.data() + 32, s_per_byte).ptr - number.data()));
    text += (text.empty() ? "" : " ") + work + "=" + number;
  }
  return text;
}

Result<Topology::Work> memory_from_text(const std::string& text) {
  Topology::Work rates;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const size_t equals = std::min(word.find('='), word.size() - 1);
    const std::string work = word.substr(0, equals);
    double s_per_byte = 0;
    const char* end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + equals + 1, end, s_per_byte);
    const bool known = work == "touch" || work == "fetch";
    if (!known || read.ec != std::errc() || read.ptr != end || !(s_per_byte > 0 && s_per_byte < 1e-6)) {
      return Status(Code::kMismatch, "\"" + word + "\" is no rate of memory");
    }
    rates[work] = s_per_byte;
  }
  return rates;
}

Topology::Work median_of(const std::vector<Topology::Work>& ranks) {
  Topology::Work medians = ranks.empty() ? Topology::Work() : ranks[0];
  for (auto& [work, median] : medians) {
    std::vector<double> all;
    for (const Topology::Work& rates : ranks) {
      if (rates.size() != medians.size() || !rates.contains(work)) return {};
      all.push_back(rates.find(work)->second);
    }
    std::ranges::sort(all);
    median = all[all.size() / 2];
  }
  return medians;
}

}  // namespace braid

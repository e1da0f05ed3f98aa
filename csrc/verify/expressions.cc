// SPDX-License-Identifier: Apache-2.0
#include "verify/expressions.h"

#include <algorithm>

namespace braid {

Expressions::Expressions(int ranks)
    : ranks_(ranks), words_((static_cast<size_t>(ranks) + 63) / 64), combinations_(16, Hash{this}, Equal{this}) {}

Expressions::Id Expressions::append(Block block) {
  entries_.push_back({block, operands_.size(), 0});
  contributed_.resize(contributed_.size() + words_, 0);
  return static_cast<Id>(entries_.size() - 1);
}

Expressions::Id Expressions::leaf(Node rank, Block block) {
  auto [place, is_new] = leaves_.try_emplace(block * ranks_ + rank, 0);
  if (is_new) {
    place->second = append(block);
    contributed_[place->second * words_ + rank / 64] |= uint64_t{1} << (rank % 64);
  }
  return place->second;
}

std::optional<Expressions::Id> Expressions::combine(std::span<const Id> operands) {
  Id id = append(block(operands[0]));
  auto discard = [&] {
    operands_.resize(entries_[id].first_operand);
    entries_.pop_back();
    contributed_.resize(contributed_.size() - words_);
  };
  for (Id operand : operands) {
    for (size_t word = 0; word < words_; ++word) {
      uint64_t more = contributed_[operand * words_ + word];
      uint64_t& sum = contributed_[id * words_ + word];
      if ((sum & more) != 0) {
        discard();
        return std::nullopt;
      }
      sum |= more;
    }
    operands_.push_back(operand);
  }
  entries_[id].operand_count = operands.size();
  if (operands.size() == 2) std::sort(operands_.end() - 2, operands_.end());
  auto [known, is_new] = combinations_.insert(id);
  if (is_new) return id;
  Id found = *known;
  discard();
  return found;
}

size_t Expressions::Hash::operator()(Id id) const {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (Id operand : owner->operands_of(id)) {
    hash = (hash ^ static_cast<uint64_t>(operand)) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

bool Expressions::Equal::operator()(Id a, Id b) const {
  return std::ranges::equal(owner->operands_of(a), owner->operands_of(b));
}

bool Expressions::is_complete(Id id) const {
  int count = 0;
  for (size_t word = 0; word < words_; ++word) count += __builtin_popcountll(contributed_[id * words_ + word]);
  return count == ranks_;
}

std::string Expressions::list_ranks(Id id, bool contributing) const {
  std::string text;
  for (Node rank = 0; rank < ranks_; ++rank) {
    bool contributes = (contributed_[id * words_ + rank / 64] >> (rank % 64) & 1) != 0;
    if (contributes == contributing) text += (text.empty() ? "r" : ", r") + std::to_string(rank);
  }
  return text;
}

std::string Expressions::contributors(Id id) const { return list_ranks(id, true); }

std::string Expressions::missing_ranks(Id id) const { return list_ranks(id, false); }

}  // namespace braid

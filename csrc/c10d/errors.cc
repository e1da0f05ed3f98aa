// SPDX-License-Identifier: Apache-2.0
#include "c10d/errors.h"

#include <c10/util/Exception.h>

#include <charconv>
#include <set>
#include <string_view>

namespace braid::adapter {
namespace {

// The group ranks that the text names ("rank 3"), in order.
std::set<int> ranks_named_in(const std::string& text) {
  static constexpr std::string_view kWord = "rank ";
  std::set<int> ranks;
  for (size_t at = text.find(kWord); at != std::string::npos; at = text.find(kWord, at)) {
    at += kWord.size();
    int rank = -1;
    std::from_chars(text.data() + at, text.data() + text.size(), rank);
    if (rank >= 0) ranks.insert(rank);
  }
  return ranks;
}

// The status names group ranks, but users know global ranks. So add the global ranks.
std::string message_of(const Status& status, const Members& members) {
  std::set<int> ranks = ranks_named_in(status.message());
  std::string text = "braid: " + status.message();
  if (status.rank() >= 0 && ranks.insert(status.rank()).second)
    text += " [rank " + std::to_string(status.rank()) + "]";
  std::string global;
  for (const int rank : ranks) {
    const int64_t known_as = members.global_rank(rank);
    if (known_as == rank) continue;
    global += global.empty() ? " [" : ", ";
    global += "rank " + std::to_string(rank) + " of this group is global rank " + std::to_string(known_as);
  }
  return global.empty() ? text : text + global + "]";
}

template <class Error>
std::exception_ptr make(const std::string& message) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  return std::make_exception_ptr(Error(here, message));
}

}  // namespace

int64_t Members::global_rank(int group_rank) const {
  const bool listed = group_rank >= 0 && static_cast<size_t>(group_rank) < global_ranks.size();
  return listed ? global_ranks[static_cast<size_t>(group_rank)] : group_rank;
}

std::exception_ptr exception_of(const Status& status, const Members& members) {
  const std::string message = message_of(status, members);
  switch (status.code()) {
    case Code::kInvalidArgument: return make<c10::ValueError>(message);
    case Code::kUnsupported: return make<c10::NotImplementedError>(message);
    default: return make<c10::DistBackendError>(message);
  }
}

void raise_if_failed(const Status& status, const Members& members) {
  if (!status.ok()) std::rethrow_exception(exception_of(status, members));
}

}  // namespace braid::adapter

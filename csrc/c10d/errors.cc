// SPDX-License-Identifier: Apache-2.0
#include "c10d/errors.h"

#include <c10/util/Exception.h>

#include <utility>

namespace braid::adapter {
namespace {

// The status speaks of group ranks; a user who started the job thinks in global ones.
std::string message_of(const Status& status, const Members& members) {
  std::string message = "braid: " + status.message();
  const int rank = status.rank();
  if (rank < 0) return message;
  const std::string name = members.name(rank);
  const bool differs = name.find('(') != std::string::npos;
  if (differs || message.find("rank " + std::to_string(rank)) == std::string::npos) message += " [" + name + "]";
  return message;
}

template <class Error>
std::exception_ptr make(const std::string& message) {
  const c10::SourceLocation here{__func__, __FILE__, static_cast<uint32_t>(__LINE__)};
  return std::make_exception_ptr(Error(here, message));
}

}  // namespace

std::string Members::name(int group_rank) const {
  const std::string name = "rank " + std::to_string(group_rank);
  if (group_rank < 0 || static_cast<size_t>(group_rank) >= global_ranks.size()) return name;
  const int64_t global = global_ranks[static_cast<size_t>(group_rank)];
  return global == group_rank ? name : name + " (global rank " + std::to_string(global) + ")";
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

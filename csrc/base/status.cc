// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <new>
#include <system_error>

namespace braid {
namespace {

const std::string no_message;
const std::string no_memory = "out of memory, even to say what for";

}  // namespace

const char* name_of(Code code) {
  switch (code) {
    case Code::kOk: return "ok";
    case Code::kInvalidArgument: return "invalid argument";
    case Code::kMismatch: return "mismatch";
    case Code::kTimeout: return "timeout";
    case Code::kPeerLost: return "peer lost";
    case Code::kAborted: return "aborted";
    case Code::kUnsupported: return "unsupported";
    case Code::kSystem: return "system error";
    case Code::kInternal: return "internal error";
  }
  return "unknown";
}

Status::Status(Code code, std::string message, int rank) noexcept : code_(code), rank_(rank) {
  if (message.empty()) return;
  try {
    message_ = std::make_shared<const std::string>(std::move(message));
  } catch (const std::bad_alloc&) {
    message_ = {std::shared_ptr<void>(), &no_memory};
  }
}

Status Status::out_of_memory() noexcept {
  Status status;
  status.code_ = Code::kSystem;
  status.message_ = {std::shared_ptr<void>(), &no_memory};
  return status;
}

const std::string& Status::message() const { return message_ ? *message_ : no_message; }

Status Status::within(const std::string& context) const {
  return ok() ? *this : Status(code_, context + ": " + message(), rank_);
}

Status system_error(const std::string& what, int error_number) {
  return {Code::kSystem, what + ": " + std::generic_category().message(error_number)};
}

}  // namespace braid

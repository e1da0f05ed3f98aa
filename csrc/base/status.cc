// SPDX-License-Identifier: Apache-2.0
#include "base/status.h"

#include <system_error>

namespace braid {

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

Status Status::within(const std::string& context) const {
  return ok() ? *this : Status(code_, context + ": " + message_, rank_);
}

Status system_error(const std::string& what, int error_number) {
  return {Code::kSystem, what + ": " + std::generic_category().message(error_number)};
}

}  // namespace braid

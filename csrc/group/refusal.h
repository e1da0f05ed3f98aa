// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "base/status.h"
#include "transport/mailbox.h"

namespace braid {

// Why a group starts nothing more: it has failed, or was shut down. Ok while it is open.
inline Status refusal(const Mailbox& mailbox, const std::string& group, bool is_shut_down) {
  if (Status failed = mailbox.failure(); !failed.ok()) {
    return failed.within("group \"" + group + "\" failed earlier; destroy it and form a new one");
  }
  if (is_shut_down) return {Code::kAborted, "group \"" + group + "\" was shut down"};
  return {};
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "base/random.h"

#include <sys/random.h>

#include <cerrno>

namespace braid {

Status fill_random(Bytes into) {
  while (!into.empty()) {
    const ssize_t got = ::getrandom(into.data(), into.size(), 0);
    if (got < 0 && errno != EINTR) return system_error("cannot get random bytes", errno);
    if (got > 0) into = into.subspan(static_cast<size_t>(got));
  }
  return {};
}

}  // namespace braid

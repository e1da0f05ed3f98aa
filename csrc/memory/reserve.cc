// SPDX-License-Identifier: Apache-2.0
#include "memory/reserve.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <string>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace braid {
namespace {

int ask_system(void* begin, size_t bytes) {
  while (::madvise(begin, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno != EINTR && errno != EAGAIN) return errno;
  }
  return 0;
}

std::atomic<int (*)(void*, size_t)> populate{ask_system};

}  // namespace

void reserve_by(int (*function)(void*, size_t)) { populate = function == nullptr ? ask_system : function; }

Status reserve(std::byte* begin, size_t bytes) {
  static const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const uintptr_t first = reinterpret_cast<uintptr_t>(begin) / page * page;
  const uintptr_t end = (reinterpret_cast<uintptr_t>(begin) + bytes + page - 1) / page * page;
  const int error = populate.load()(reinterpret_cast<void*>(first), end - first);
  // EFAULT: a touch would have been a SIGBUS.
  if (error != EFAULT && error != ENOMEM && error != EHWPOISON) return {};
  return {Code::kSystem,
          "the machine has no memory left for " + std::to_string(bytes) +
              " more bytes of shared memory (overcommit is strict, or its memory is broken); fewer ranks "
              "per host or fewer groups need less, and BRAID_TRANSPORTS=tcp needs none"};
}

Status ReservedPrefix::grow_to(size_t bytes) {
  const size_t wanted = std::min((bytes + kStepBytes - 1) / kStepBytes * kStepBytes, bytes_);
  if (wanted <= reserved_) return {};
  const Status reserved = reserve(begin_ + reserved_, wanted - reserved_);
  if (reserved.ok()) reserved_ = wanted;
  return reserved;
}

}  // namespace braid

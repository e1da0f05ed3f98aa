// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_memory.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>

namespace braid::shm {

void permit_readers() {
  const int fd = ::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return;
  char scope = '0';
  const bool restricted = ::read(fd, &scope, 1) == 1 && scope == '1';
  ::close(fd);
  // Refused or not, the peers' probes will tell.
  if (restricted) (void)::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
}

Status read_memory(pid_t pid, uint64_t address, Bytes into) {
  while (!into.empty()) {
    iovec local{into.data(), into.size()};
    iovec remote{reinterpret_cast<void*>(address), into.size()};
    const ssize_t got = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      // The call ends early where a page is missing; the next one then begins at that page and says why.
      const int error = got < 0 ? errno : EFAULT;
      if (error == EINTR) continue;
      if (error == ESRCH) return {Code::kPeerLost, "process " + std::to_string(pid) + " is gone"};
      return system_error(
          "cannot read " + std::to_string(into.size()) + " bytes of the memory of process " + std::to_string(pid),
          error);
    }
    into = into.subspan(static_cast<size_t>(got));
    address += static_cast<uint64_t>(got);
  }
  return {};
}

}  // namespace braid::shm

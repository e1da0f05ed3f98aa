// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/peer_memory.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace braid::shm {
namespace {

bool only_parents_may_read() {
  const int fd = ::open("/proc/sys/kernel/yama/ptrace_scope", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  char scope = '0';
  const bool restricted = ::read(fd, &scope, 1) == 1 && scope == '1';
  ::close(fd);
  return restricted;
}

// The result is ignored: the peers find out when they try to read.
void permit(long reader) {
  if (only_parents_may_read()) (void)::prctl(PR_SET_PTRACER, static_cast<unsigned long>(reader), 0, 0, 0);
}

}  // namespace

static_assert(static_cast<unsigned long>(ReadPermits::kEverybody) == PR_SET_PTRACER_ANY);

void ReadPermits::change(const std::vector<pid_t>& gone, const std::vector<pid_t>& come) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(pid_, ::getpid()) != ::getpid()) {
    readers_.clear();
    permitted_ = kNobody;
  }
  for (const pid_t pid : come) ++readers_[pid];
  for (const pid_t pid : gone) {
    if (const auto found = readers_.find(pid); found != readers_.end() && --found->second == 0) {
      readers_.erase(found);
    }
  }
  const long now = readers_.empty() ? kNobody : readers_.size() > 1 ? kEverybody : readers_.begin()->first;
  if (std::exchange(permitted_, now) != now) permit_(now);
}

void Readers::set(std::vector<pid_t> pids) {
  static ReadPermits& of_this_process = *new ReadPermits(permit);  // groups may end after statics do
  of_this_process.change(std::exchange(pids_, pids), pids);
}

Status read_memory(pid_t pid, uint64_t address, Bytes into) {
  while (!into.empty()) {
    iovec local{into.data(), into.size()};
    iovec remote{reinterpret_cast<void*>(address), into.size()};
    const ssize_t got = ::process_vm_readv(pid, &local, 1, &remote, 1, 0);
    if (got <= 0) {
      // The call ends early at a missing page. The next call begins at that page and returns the error.
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

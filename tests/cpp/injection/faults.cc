// SPDX-License-Identifier: Apache-2.0
#include "injection/faults.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace braid::testing {
namespace {

constexpr int kNothing = -1;
constexpr uint64_t kNever = ~uint64_t{0};
std::atomic<int> armed{kNothing};
std::atomic<uint64_t> requests{0}, first_refused{kNever}, refusals{0};

// Sites are noted in a table of fixed size: whoever is asked for memory must not ask for any.
constexpr size_t kSlots = size_t{1} << 16;
std::array<std::atomic<Site>, kSlots> slots;       // 0: free
std::array<std::atomic<uint64_t>, kSlots> firsts;  // the number of the first request
std::atomic<bool> notes{false};
std::atomic<Site> wanted{0};

Site here() {
  std::array<void*, 16> calls{};
  const int depth = ::backtrace(calls.data(), static_cast<int>(calls.size()));
  Site site = 14695981039346656037u;  // FNV-1a over addresses
  for (int i = 0; i < depth; ++i) site = (site ^ reinterpret_cast<uintptr_t>(calls[size_t(i)])) * 1099511628211u;
  return site | 1;
}

void note(Site site, uint64_t number) {
  for (size_t slot = site >> 20;; ++slot) {
    std::atomic<Site>& place = slots[slot % kSlots];
    Site found = 0;
    if (place.compare_exchange_strong(found, site)) firsts[slot % kSlots] = number;
    if (found == 0 || found == site) return;
  }
}

bool refuses(Fault kind) {
  if (armed.load(std::memory_order_acquire) != static_cast<int>(kind)) return false;
  static thread_local bool busy = false;  // backtrace() may ask for memory itself
  if (busy) return false;
  const uint64_t number = requests.fetch_add(1, std::memory_order_relaxed) + 1;
  const Site target = wanted.load(std::memory_order_relaxed);
  if (notes || (target != 0 && first_refused.load(std::memory_order_relaxed) == kNever)) {
    busy = true;
    const Site site = here();
    busy = false;
    if (notes) note(site, number);
    uint64_t none = kNever;
    if (site == target) first_refused.compare_exchange_strong(none, number);
  }
  const uint64_t first = first_refused.load(std::memory_order_relaxed);
  return number >= first && number - first < refusals.load(std::memory_order_relaxed);
}

bool refuses_descriptor(int error_number) {
  if (!refuses(Fault::kDescriptor)) return false;
  errno = error_number;
  return true;
}

void* allocate(size_t bytes, size_t alignment) {
  if (refuses(Fault::kMemory)) return nullptr;
  const size_t rounded = (bytes + alignment - 1) / alignment * alignment;
  return alignment <= alignof(std::max_align_t) ? std::malloc(bytes > 0 ? bytes : 1)
                                                : std::aligned_alloc(alignment, rounded > 0 ? rounded : alignment);
}

void* allocate_or_throw(size_t bytes, size_t alignment = 1) {
  void* memory = allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void arm(Fault kind, uint64_t first, uint64_t count) {
  requests = 0;
  first_refused = first > 0 ? first : kNever;
  refusals = count;
  armed.store(static_cast<int>(kind), std::memory_order_release);
}

void arm_at(Fault kind, Site site, uint64_t count) {
  wanted = site;
  arm(kind, 0, count);
}

void note_sites(Fault kind) {
  static_cast<void>(here());  // its first call loads a library
  for (auto& slot : slots) slot = 0;
  notes = true;
  arm(kind, 0);
}

std::vector<Site> noted_sites() {
  std::vector<std::pair<uint64_t, Site>> sites;
  for (size_t slot = 0; slot < kSlots; ++slot) {
    if (slots[slot] != 0) sites.emplace_back(firsts[slot].load(), slots[slot].load());
  }
  std::sort(sites.begin(), sites.end());
  std::vector<Site> in_order;
  for (const auto& [first, site] : sites) in_order.push_back(site);
  return in_order;
}

bool tries_every_place() {
  static const bool asked = std::getenv("BRAID_TEST_EVERY_FAULT") != nullptr;
  return asked;
}

uint64_t disarm() {
  armed.store(kNothing, std::memory_order_release);
  notes = false;
  wanted = 0;
  return requests.load();
}

}  // namespace braid::testing

using braid::testing::Fault;

// ---- memory

void* operator new(size_t bytes) { return braid::testing::allocate_or_throw(bytes); }
void* operator new[](size_t bytes) { return braid::testing::allocate_or_throw(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return braid::testing::allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return braid::testing::allocate_or_throw(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept { return braid::testing::allocate(bytes, 1); }
void* operator new[](size_t bytes, const std::nothrow_t&) noexcept { return braid::testing::allocate(bytes, 1); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

extern "C" {

// ---- descriptors, as the linker's --wrap has them

int __real_socket(int domain, int type, int protocol);
int __wrap_socket(int domain, int type, int protocol) {
  return braid::testing::refuses_descriptor(EMFILE) ? -1 : __real_socket(domain, type, protocol);
}
int __real_accept4(int socket, sockaddr* address, socklen_t* bytes, int flags);
int __wrap_accept4(int socket, sockaddr* address, socklen_t* bytes, int flags) {
  return braid::testing::refuses_descriptor(EMFILE) ? -1 : __real_accept4(socket, address, bytes, flags);
}
int __real_eventfd(unsigned count, int flags);
int __wrap_eventfd(unsigned count, int flags) {
  return braid::testing::refuses_descriptor(EMFILE) ? -1 : __real_eventfd(count, flags);
}
int __real_epoll_create1(int flags);
int __wrap_epoll_create1(int flags) {
  return braid::testing::refuses_descriptor(EMFILE) ? -1 : __real_epoll_create1(flags);
}
int __real_memfd_create(const char* name, unsigned flags);
int __wrap_memfd_create(const char* name, unsigned flags) {
  return braid::testing::refuses_descriptor(EMFILE) ? -1 : __real_memfd_create(name, flags);
}
int __real_open(const char* path, int flags, ...);
int __wrap_open(const char* path, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  const mode_t mode = (flags & 0100) != 0 ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  return braid::testing::refuses_descriptor(EMFILE) ? -1 : __real_open(path, flags, mode);
}
void* __real_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset);
void* __wrap_mmap(void* address, size_t bytes, int protection, int flags, int fd, off_t offset) {
  if (braid::testing::refuses_descriptor(ENOMEM)) return MAP_FAILED;
  return __real_mmap(address, bytes, protection, flags, fd, offset);
}
long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f) {
  if (number == SYS_pidfd_open && braid::testing::refuses_descriptor(EMFILE)) return -1;
  return __real_syscall(number, a, b, c, d, e, f);
}

// ---- threads: the C++ library's own call comes here, as the program is looked in before libraries are

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*), void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static Create* const create = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
  if (braid::testing::refuses(Fault::kThread)) return EAGAIN;
  return create(thread, attributes, body, argument);
}

}  // extern "C"

// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "memory/handle_text.h"
#include "memory/reserve.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U
#endif

namespace braid {
namespace {

constexpr size_t kLargestBytes = size_t{1} << 40;
constexpr int kSizeSeals = F_SEAL_SHRINK | F_SEAL_GROW;

struct SegmentHandle {
  pid_t pid = -1;
  int fd = -1;
  size_t bytes = 0;
  Nonce nonce;

  std::string text() const {
    return std::to_string(pid) + ":" + std::to_string(fd) + ":" + std::to_string(bytes) + ":" + nonce.text();
  }
};

Result<SegmentHandle> parse_handle(std::string_view text) {
  const auto fields = split(text, ':');
  const Status refused(Code::kInvalidArgument, "not a handle of shared memory: '" + std::string(text) + "'");
  if (fields.size() != 4) return refused;
  const auto pid = parse_number<pid_t>(fields[0]);
  const auto fd = parse_number<int>(fields[1]);
  const auto bytes = parse_number<size_t>(fields[2]);
  const auto nonce = Nonce::parse(fields[3]);
  if (!pid || !fd || !bytes || !nonce) return refused;
  if (*pid <= 0 || *fd < 0 || *bytes < Segment::kReservedBytes || *bytes > kLargestBytes) return refused;
  return SegmentHandle{*pid, *fd, *bytes, *nonce};
}

int anonymous_file(const char* label) {
  // Machines may insist on memory that can never be executed; kernels before 6.3 do not know the flag.
  const int fd = ::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  return fd >= 0 || errno != EINVAL ? fd : ::memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

Result<std::byte*> map_shared(int fd, size_t bytes) {
  void* address = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return system_error("cannot map " + std::to_string(bytes) + " bytes of shared memory", errno);
  }
  return static_cast<std::byte*>(address);
}

// If the file could shrink, later reads would end this process with SIGBUS.
Status check_file(int fd, size_t bytes) {
  struct stat file{};
  if (::fstat(fd, &file) != 0) return system_error("cannot examine shared memory", errno);
  const int seals = ::fcntl(fd, F_GET_SEALS);
  if (!S_ISREG(file.st_mode) || static_cast<size_t>(file.st_size) != bytes || seals < 0 ||
      (seals & kSizeSeals) != kSizeSeals) {
    return {Code::kUnsupported, "is not a sealed segment of " + std::to_string(bytes) + " bytes"};
  }
  return {};
}

}  // namespace

Result<Segment> Segment::create(const char* label, size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  if (bytes == 0 || bytes > kLargestBytes) {
    return Status(Code::kInvalidArgument, "a segment cannot have " + std::to_string(bytes) + " bytes");
  }
  Result<Nonce> nonce = Nonce::random();
  if (!nonce.ok()) return nonce.status();

  Segment segment;
  segment.owner_ = ::getpid();
  segment.fd_ = anonymous_file(label);
  if (segment.fd_ < 0) return system_error("memfd_create refused shared memory", errno);
  const size_t whole_pages = (bytes + page - 1) / page * page;
  if (::ftruncate(segment.fd_, static_cast<off_t>(whole_pages)) != 0 ||
      ::fcntl(segment.fd_, F_ADD_SEALS, kSizeSeals | F_SEAL_SEAL) != 0) {
    return system_error("cannot fix the size of shared memory at " + std::to_string(whole_pages), errno);
  }
  Result<std::byte*> mapped = map_shared(segment.fd_, whole_pages);
  if (!mapped.ok()) return mapped.status();
  segment.data_ = mapped.value();
  segment.size_ = whole_pages;
  if (Status refused = reserve(segment.data_, sizeof(Nonce)); !refused.ok()) return refused;
  std::memcpy(segment.data_, &nonce.value(), sizeof(Nonce));
  segment.handle_ = SegmentHandle{segment.owner_, segment.fd_, whole_pages, nonce.value()}.text();
  return segment;
}

Result<Segment> Segment::attach(std::string_view handle) {
  Result<SegmentHandle> parsed = parse_handle(handle);
  if (!parsed.ok()) return parsed.status();
  const SegmentHandle& wanted = parsed.value();
  const std::string path = "/proc/" + std::to_string(wanted.pid) + "/fd/" + std::to_string(wanted.fd);
  // The handle may lie: do not block on a pipe, do not adopt a terminal.
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return system_error("cannot open the shared memory " + path, errno);

  Segment segment;
  segment.fd_ = fd;  // so that it is closed in every case; the mapping does not need it
  Status status = check_file(fd, wanted.bytes);
  if (status.ok()) {
    Result<std::byte*> mapped = map_shared(fd, wanted.bytes);
    status = mapped.status();
    if (mapped.ok()) {
      segment.data_ = mapped.value();
      segment.size_ = wanted.bytes;
    }
  }
  ::close(std::exchange(segment.fd_, -1));
  if (!status.ok()) return status.within(path);
  if (std::memcmp(segment.data_, &wanted.nonce, sizeof(Nonce)) != 0) {
    return Status(Code::kUnsupported, path + ": holds other memory than the handle says");
  }
  segment.owner_ = wanted.pid;
  segment.handle_ = wanted.text();
  return segment;
}

Result<pid_t> Segment::owner_of(std::string_view handle) {
  const Result<SegmentHandle> parsed = parse_handle(handle);
  if (!parsed.ok()) return parsed.status();
  return parsed.value().pid;
}

Segment::Segment(Segment&& other) noexcept { *this = std::move(other); }

Segment& Segment::operator=(Segment&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(fd_, other.fd_);
  std::swap(owner_, other.owner_);
  std::swap(handle_, other.handle_);
  return *this;
}

Segment::~Segment() {
  if (data_ != nullptr) ::munmap(data_, size_);
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace braid

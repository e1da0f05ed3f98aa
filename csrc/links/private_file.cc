// SPDX-License-Identifier: Apache-2.0
#include "links/private_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "base/random.h"
#include "base/sha256.h"

namespace braid {
namespace {

constexpr size_t kReadAtOnce = size_t{1} << 16;

class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) ::close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

bool is_ours(const struct stat& info) {
  return S_ISREG(info.st_mode) && (info.st_uid == ::geteuid() || info.st_uid == 0) &&
         (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

bool write_all(int fd, const std::string& text) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) done += static_cast<size_t>(wrote);
  }
  return true;
}

void make_folder(const std::filesystem::path& folder) {
  std::error_code ignored;  // if the folder cannot be made, opening the file fails
  if (folder.has_parent_path()) std::filesystem::create_directories(folder.parent_path(), ignored);
  // Compiled code is kept in this folder, too. It is trusted only if nobody else can write here, whatever the
  // umask.
  ::mkdir(folder.c_str(), S_IRWXU);
}

}  // namespace

std::optional<std::string> read_private_file(const std::string& path, size_t most_bytes) {
  const File file(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY));
  struct stat info{};
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !is_ours(info)) return std::nullopt;
  if (info.st_size < 0 || static_cast<size_t>(info.st_size) > most_bytes) return std::nullopt;
  std::string text;
  for (size_t done = 0;;) {
    text.resize(done + std::min(kReadAtOnce, most_bytes - done + 1));
    const ssize_t got = ::read(file.get(), text.data() + done, text.size() - done);
    if (got < 0 && errno != EINTR) return std::nullopt;
    if (got > 0) done += static_cast<size_t>(got);
    if (done > most_bytes) return std::nullopt;  // it has grown
    if (got == 0) {
      text.resize(done);
      return text;
    }
  }
}

bool write_private_file(const std::string& path, const std::string& text) {
  make_folder(std::filesystem::path(path).parent_path());
  std::array<std::byte, 8> random{};  // other processes, on other machines too, may write at the same time
  if (!fill_random(random).ok()) return false;
  const std::string draft = path + "." + hex(random);
  bool done = false;
  {
    const File file(
        ::open(draft.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file.get() < 0) return false;
    done = write_all(file.get(), text);
  }
  if (!done || ::rename(draft.c_str(), path.c_str()) != 0) {
    ::unlink(draft.c_str());
    return false;
  }
  return true;
}

}  // namespace braid

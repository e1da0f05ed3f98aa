// SPDX-License-Identifier: Apache-2.0
#include "memory/segment.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "memory/handle_text.h"

namespace braid {
namespace {

std::set<std::string> files_in(const char* folder) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.insert(entry.path().filename());
  return names;
}

size_t open_descriptors() { return files_in("/proc/self/fd").size(); }

size_t touched_pages(const Segment& segment) {
  std::vector<unsigned char> resident(segment.size() / 4096);
  EXPECT_EQ(::mincore(segment.data(), segment.size(), resident.data()), 0);
  size_t count = 0;
  for (const unsigned char page : resident) count += page & 1;
  return count;
}

std::string with_field(const std::string& handle, size_t index, const std::string& value) {
  std::string changed;
  size_t i = 0;
  for (const std::string_view field : split(handle, ':')) {
    changed += (i == 0 ? "" : ":") + (i == index ? value : std::string(field));
    ++i;
  }
  return changed;
}

TEST(SegmentTest, BothMappingsAreTheSameMemory) {
  auto mine = Segment::create("test", 10'000);
  ASSERT_TRUE(mine.ok()) << mine.status().message();
  EXPECT_EQ(mine.value().size(), 12'288u);
  EXPECT_EQ(mine.value().owner(), ::getpid());
  auto theirs = Segment::attach(mine.value().handle());
  ASSERT_TRUE(theirs.ok()) << theirs.status().message();
  EXPECT_EQ(theirs.value().size(), mine.value().size());
  EXPECT_EQ(theirs.value().owner(), ::getpid());
  EXPECT_NE(theirs.value().data(), mine.value().data());
  for (size_t i = Segment::kReservedBytes; i < mine.value().size(); ++i) {
    ASSERT_EQ(mine.value().data()[i], std::byte{0});
  }
  mine.value().data()[9'999] = std::byte{42};
  EXPECT_EQ(theirs.value().data()[9'999], std::byte{42});
}

TEST(SegmentTest, AnAttachedSegmentOutlivesItsCreator) {
  auto creator = std::make_unique<Result<Segment>>(Segment::create("test", 4096));
  creator->value().data()[100] = std::byte{7};
  const std::string handle = creator->value().handle();
  auto attached = Segment::attach(handle);
  creator.reset();
  EXPECT_EQ(attached.value().data()[100], std::byte{7});
  EXPECT_FALSE(Segment::attach(handle).ok()) << "the handle ends with the creator";
}

TEST(SegmentTest, AnotherProcessAttaches) {
  auto mine = Segment::create("test", 4096);
  const std::string handle = mine.value().handle();
  const pid_t child = ::fork();
  if (child == 0) {
    auto theirs = Segment::attach(handle);
    if (theirs.ok()) std::memcpy(theirs.value().data() + 64, "hello", 6);
    ::_exit(theirs.ok() && theirs.value().owner() == ::getppid() ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_STREQ(reinterpret_cast<const char*>(mine.value().data() + 64), "hello");
}

TEST(SegmentTest, LeavesNoNamesAndNoDescriptors) {
  const auto names = files_in("/dev/shm");
  const size_t descriptors = open_descriptors();
  {
    auto mine = Segment::create("test", 4096);
    auto theirs = Segment::attach(mine.value().handle());
    ASSERT_TRUE(theirs.ok());
    EXPECT_EQ(files_in("/dev/shm"), names);
    EXPECT_EQ(open_descriptors(), descriptors + 1) << "only the creator's";
    Segment moved = std::move(mine).value();
    EXPECT_TRUE(Segment::attach(moved.handle()).ok());
  }
  EXPECT_EQ(open_descriptors(), descriptors);
}

TEST(SegmentTest, UntouchedPagesCostNothing) {
  auto segment = Segment::create("test", size_t{64} << 20);
  EXPECT_EQ(touched_pages(segment.value()), 1u) << "the nonce";
  segment.value().data()[size_t{33} << 20] = std::byte{1};
  EXPECT_EQ(touched_pages(segment.value()), 2u);
}

TEST(SegmentTest, TheSizeIsSealed) {
  auto segment = Segment::create("test", 8192);
  const auto fields = split(segment.value().handle(), ':');
  const int fd = *parse_number<int>(fields[1]);
  EXPECT_NE(::ftruncate(fd, 4096), 0);
  EXPECT_NE(::ftruncate(fd, 16'384), 0);
}

TEST(SegmentTest, ImpossibleSizesAreRefused) {
  EXPECT_EQ(Segment::create("test", 0).status().code(), Code::kInvalidArgument);
  EXPECT_EQ(Segment::create("test", SIZE_MAX).status().code(), Code::kInvalidArgument);
}

TEST(SegmentTest, GarbageHandlesAreRefused) {
  auto segment = Segment::create("test", 4096);
  const std::string handle = segment.value().handle();
  std::vector<std::string> garbage = {"",
                                      ":",
                                      ":::",
                                      "hello",
                                      "1:2:3:4",
                                      handle + ":",
                                      handle + " ",
                                      " " + handle,
                                      handle.substr(0, handle.size() - 1),
                                      std::string(100'000, '1')};
  garbage.push_back(with_field(handle, 0, "0"));
  garbage.push_back(with_field(handle, 0, "-1"));
  garbage.push_back(with_field(handle, 0, "../1"));
  garbage.push_back(with_field(handle, 1, "-3"));
  garbage.push_back(with_field(handle, 1, "99999999999999999999"));
  garbage.push_back(with_field(handle, 2, "0"));
  garbage.push_back(with_field(handle, 2, "18446744073709551615"));
  garbage.push_back(with_field(handle, 3, std::string(32, 'g')));
  for (const std::string& text : garbage) {
    EXPECT_EQ(Segment::attach(text).status().code(), Code::kInvalidArgument) << text.substr(0, 80);
  }
}

TEST(SegmentTest, OtherMemoryThanTheHandlesIsRefused) {
  auto segment = Segment::create("test", 4096);
  const std::string handle = segment.value().handle();
  EXPECT_EQ(Segment::attach(with_field(handle, 3, std::string(32, '0'))).status().code(), Code::kUnsupported);
  EXPECT_EQ(Segment::attach(with_field(handle, 2, "8192")).status().code(), Code::kUnsupported);
  EXPECT_EQ(Segment::attach(with_field(handle, 1, "987654")).status().code(), Code::kSystem);

  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  EXPECT_FALSE(Segment::attach(with_field(handle, 1, std::to_string(ends[0]))).ok());
  ::close(ends[0]);
  ::close(ends[1]);

  // A file of the right size and contents that could be truncated under us.
  const int loose = ::memfd_create("loose", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(loose, 4096), 0);
  ASSERT_EQ(::pwrite(loose, segment.value().data(), 64, 0), 64);
  EXPECT_EQ(Segment::attach(with_field(handle, 1, std::to_string(loose))).status().code(), Code::kUnsupported);
  ::close(loose);
}

TEST(SegmentTest, ADeadProcessIsRefused) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto segment = Segment::create("test", 4096);
    const std::string& handle = segment.value().handle();
    const bool sent = ::write(ends[1], handle.data(), handle.size()) == static_cast<ssize_t>(handle.size());
    ::_exit(sent ? 0 : 1);
  }
  ::close(ends[1]);
  std::string handle(200, '\0');
  handle.resize(static_cast<size_t>(::read(ends[0], handle.data(), handle.size())));
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  const Status status = Segment::attach(handle).status();
  EXPECT_EQ(status.code(), Code::kSystem) << status.message();
  EXPECT_NE(status.message().find("/proc/" + std::to_string(child)), std::string::npos) << status.message();
}

}  // namespace
}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// What is remembered of the links between hosts, and that a file which is no good does no harm.
#include "links/link_memory.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/sha256.h"

namespace braid::testing {
namespace {

using Names = std::vector<std::string>;

constexpr Link kWithin{1e-6, 1e-10};
constexpr double kAlpha_s = 1.0 / 30'000;  // whose digits do not end
constexpr Topology::Nic kFast{1.0 / 3e9, 1.0 / 3e9}, kSlowUp{1.0 / 7e7, 1.0 / 3e9},
    kSlow{1.0 / 1.1e8, 1.0 / 1.3e8};

// Hosts a, b and c, of which b has two ranks.
const Names kNames = {"a", "b", "b", "c"};

Topology measured() {
  Topology topology({0, 1, 1, 2}, kWithin, {kAlpha_s, 1.0 / 3e9});
  topology.set_nic(0, kFast);
  topology.set_nic(1, kSlowUp);
  topology.set_nic(2, kSlow);
  topology.set_burst_bytes(4096);
  return topology;
}

void expect_measured(LinkMemory& memory) {
  const auto recalled = memory.recall(kNames, {0, 1, 1, 2}, kWithin);
  ASSERT_TRUE(recalled.has_value());
  EXPECT_EQ(recalled->numbered_hosts(), std::vector<int>({0, 1, 1, 2}));
  EXPECT_EQ(recalled->within_host(), kWithin);
  EXPECT_EQ(recalled->between_hosts().alpha_s, kAlpha_s);
  EXPECT_EQ(recalled->nic(0), kFast);
  EXPECT_EQ(recalled->nic(1), kSlowUp);
  EXPECT_EQ(recalled->nic(2), kSlow);
  EXPECT_EQ(recalled->burst_bytes(), 4096);
}

int64_t now_s() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(since).count();
}

std::string line(const std::string& name, const std::string& time, const std::string& numbers) {
  const auto key = [](const std::string& text) { return hex(sha256(bytes_of(text))).substr(0, 32); };
  return key("a cluster") + " " + key(name) + " " + time + " " + numbers + " .\n";
}
std::string line(const std::string& name, int64_t time, const std::string& numbers = "2e-05 0 8e-09 4e-09") {
  return line(name, std::to_string(time), numbers);
}

class LinkMemoryFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "braid-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    folder_ = name;
    file_ = folder_ / "links";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& text) const {
    std::ofstream(file_) << text;
    std::filesystem::permissions(file_, std::filesystem::perms(0600));
  }
  bool knows(const std::string& name) const {
    LinkMemory memory(file_.string());
    return memory.recall({name}, {0}, kWithin).has_value();
  }
  void expect_only(const std::filesystem::path& entry) const {
    const std::filesystem::directory_iterator entries(entry.parent_path());
    EXPECT_EQ(std::distance(begin(entries), end(entries)), 1) << "something is left behind";
    EXPECT_TRUE(std::filesystem::exists(entry));
  }
  // For a file that cannot be: what was found is still known in this process.
  static void expect_no_harm(const std::filesystem::path& file) {
    LinkMemory memory(file.string());
    EXPECT_FALSE(memory.recall(kNames, {0, 1, 1, 2}, kWithin).has_value());
    memory.keep(kNames, measured());
    expect_measured(memory);
  }

  std::filesystem::path folder_, file_;
};

TEST(LinkMemory, RecallsWhatItKept) {
  LinkMemory memory("");
  EXPECT_FALSE(memory.recall(kNames, {0, 1, 1, 2}, kWithin).has_value());
  memory.keep(kNames, measured());
  expect_measured(memory);
  EXPECT_EQ(memory.recall(kNames, {0, 1, 1, 2}, kWithin), memory.recall(kNames, {0, 1, 1, 2}, kWithin));
}

TEST(LinkMemory, RecallsNothingWhereOneHostIsUnknown) {
  LinkMemory memory("");
  memory.keep(kNames, measured());
  EXPECT_FALSE(memory.recall({"a", "d"}, {0, 1}, kWithin).has_value());
  EXPECT_FALSE(memory.recall({"d", "a"}, {0, 1}, kWithin).has_value());
  EXPECT_FALSE(memory.recall({"a", "B"}, {0, 1}, kWithin).has_value());
}

TEST(LinkMemory, NumbersHostsAsTheGroupDoes) {
  LinkMemory memory("");
  memory.keep(kNames, measured());
  const auto recalled = memory.recall({"c", "b", "c", "b"}, {0, 1, 0, 1}, kWithin);
  ASSERT_TRUE(recalled.has_value());
  EXPECT_EQ(recalled->numbered_hosts(), std::vector<int>({0, 1, 0, 1}));
  EXPECT_EQ(recalled->nic(0), kSlow);
  EXPECT_EQ(recalled->nic(1), kSlowUp);
  EXPECT_EQ(recalled->between_hosts().alpha_s, kAlpha_s);
}

TEST(LinkMemory, WhatWasFoundAmongMoreHostsCounts) {
  const Topology slow({0, 1}, kWithin, {2 * kAlpha_s, 8e-9});
  const Names pairs[] = {{"a", "b"}, {"a", "d"}};
  LinkMemory memory("");
  for (const Names& pair : pairs) memory.keep(pair, slow);
  EXPECT_EQ(memory.recall({"a", "b"}, {0, 1}, kWithin), slow);
  EXPECT_FALSE(memory.recall({"b", "d"}, {0, 1}, kWithin).has_value()) << "never measured together";
  memory.keep(kNames, measured());
  for (const Names& pair : pairs) memory.keep(pair, slow);
  const auto recalled = memory.recall({"a", "b"}, {0, 1}, kWithin);
  ASSERT_TRUE(recalled.has_value());
  EXPECT_EQ(recalled->nic(0), kFast);
  EXPECT_EQ(recalled->nic(1), kSlowUp);
  EXPECT_EQ(recalled->between_hosts().alpha_s, kAlpha_s);
}

TEST(LinkMemory, WhatWasKeptLastCounts) {
  LinkMemory memory("");
  memory.keep({"a", "b"}, Topology({0, 1}, kWithin, {kAlpha_s, 8e-9}));
  memory.keep({"b", "a"}, Topology({0, 1}, kWithin, {kAlpha_s, 4e-9}));
  EXPECT_EQ(memory.recall({"a", "b"}, {0, 1}, kWithin), Topology({0, 1}, kWithin, {kAlpha_s, 4e-9}));
}

TEST_F(LinkMemoryFile, IsReadByOthers) {
  LinkMemory(file_.string()).keep(kNames, measured());
  LinkMemory other(file_.string());
  expect_measured(other);
  expect_only(file_);
  LinkMemory(file_.string()).keep({"d"}, Topology({0}, kWithin, {kAlpha_s, 8e-9}));
  EXPECT_TRUE(knows("d"));
  EXPECT_TRUE(knows("a")) << "what others had found is kept";
}

TEST_F(LinkMemoryFile, HasNoNamesInIt) {
  LinkMemory(file_.string()).keep({"a-secret-host"}, Topology({0}, kWithin, {kAlpha_s, 8e-9}));
  std::ifstream file(file_);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(text.find("secret"), std::string::npos) << text;
}

TEST_F(LinkMemoryFile, OfADayAgoIsForgotten) {
  constexpr int64_t kHour = 60 * 60;
  write(line("old", now_s() - 25 * kHour) + line("young", now_s() - 23 * kHour));
  EXPECT_TRUE(knows("young"));
  EXPECT_FALSE(knows("old"));
  LinkMemory memory(file_.string());
  EXPECT_FALSE(memory.recall({"young", "old"}, {0, 1}, kWithin).has_value());
  memory.keep({"new"}, Topology({0}, kWithin, {kAlpha_s, 8e-9}));
  std::ifstream file(file_);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST_F(LinkMemoryFile, BrokenLinesAreSkipped) {
  const std::string good = "2e-05 0 8e-09 4e-09";
  const std::string now = std::to_string(now_s());
  write("\n \nwhat is this?\n" + std::string(100'000, 'x') + "\n" + line("short", now, "2e-05 0 8e-09") +
        line("word", now, "2e-05 0 fast 4e-09") + line("rest", now, "2e-05 0 8e-09s 4e-09") +
        line("negative", now, "2e-05 0 -8e-09 4e-09") + line("nan", now, "nan 0 8e-09 4e-09") +
        line("infinite", now, "2e-05 0 inf 4e-09") + line("old form", now, "2e-05 8e-09 4e-09") +
        line("burst", now, "2e-05 -1 8e-09 4e-09") + line("late", "soon", good) + line("float", "1e9", good) +
        line("long", "99999999999999999999", good) + line("ancient", "-9223372036854775808", good) +
        std::string("\0\xff\xfe\n", 4) + "0123 0123 " + now + " " + good + " .\n" + line("fine", now, good) +
        line("cut", now, good).substr(0, 90));
  EXPECT_TRUE(knows("fine"));
  for (const char* name : {"short", "old form", "burst", "word", "rest", "negative", "nan", "infinite", "late",
                           "float", "long", "ancient", "cut"}) {
    EXPECT_FALSE(knows(name)) << name;
  }
  const auto fine = LinkMemory(file_.string()).recall({"fine"}, {0}, kWithin);
  ASSERT_TRUE(fine.has_value());
  EXPECT_EQ(fine->nic(0), (Topology::Nic{8e-9, 4e-9}));
  EXPECT_EQ(fine->between_hosts().alpha_s, 2e-5);
}

TEST_F(LinkMemoryFile, MayBeEmpty) {
  write("");
  expect_no_harm(file_);
  LinkMemory other(file_.string());
  expect_measured(other);
}

TEST_F(LinkMemoryFile, ItsFolderIsMade) {
  const auto deep = folder_ / "not" / "yet" / "links";
  expect_no_harm(deep);
  LinkMemory other(deep.string());
  expect_measured(other);
  expect_only(deep);
}

TEST_F(LinkMemoryFile, MayBeImpossible) {
  write("");
  expect_no_harm(file_ / "links");  // below a file
  expect_no_harm("/proc/braid/links");
  expect_no_harm("/dev/full/links");
}

TEST_F(LinkMemoryFile, IsForItsOwnerAlone) {
  const ::mode_t usual = ::umask(0);
  const auto deep = folder_ / "cache" / "links";
  LinkMemory(deep.string()).keep(kNames, measured());
  ::umask(usual);
  EXPECT_EQ(std::filesystem::status(deep).permissions(), std::filesystem::perms(0600));
  EXPECT_EQ(std::filesystem::status(folder_ / "cache").permissions(), std::filesystem::perms(0700));
}

TEST_F(LinkMemoryFile, IsNotBelievedWhereOthersMayWrite) {
  write(line("a", now_s()));
  EXPECT_TRUE(knows("a"));
  for (const auto mode : {0620, 0602}) {
    std::filesystem::permissions(file_, std::filesystem::perms(mode));
    EXPECT_FALSE(knows("a")) << std::oct << mode;
    expect_no_harm(file_);  // and is replaced
    LinkMemory other(file_.string());
    expect_measured(other);
    write(line("a", now_s()));
  }
  constexpr ::uid_t kStranger = 54321;
  if (::chown(file_.c_str(), kStranger, static_cast<::gid_t>(-1)) == 0) EXPECT_FALSE(knows("a"));
}

TEST_F(LinkMemoryFile, NeitherAPipeNorALinkNorAnEndlessFileIsRead) {
  ASSERT_EQ(::mkfifo(file_.c_str(), 0600), 0);
  EXPECT_FALSE(knows("a")) << "nor waited for";
  std::filesystem::remove(file_);
  write(line("a", now_s()));
  std::filesystem::rename(file_, folder_ / "elsewhere");
  std::filesystem::create_symlink(folder_ / "elsewhere", file_);
  EXPECT_FALSE(knows("a"));
  std::filesystem::remove(file_);
  write(line("a", now_s()));
  ASSERT_EQ(::truncate(file_.c_str(), ::off_t{1} << 40), 0);
  EXPECT_FALSE(knows("a"));
}

TEST_F(LinkMemoryFile, MayBeAFolder) {
  std::filesystem::create_directory(file_);
  expect_no_harm(file_);
  expect_only(file_);
}

}  // namespace
}  // namespace braid::testing

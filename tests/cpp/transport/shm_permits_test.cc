// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "transport/shm/peer_memory.h"

namespace braid::shm {
namespace {

using Told = std::vector<long>;

class PermitsTest : public ::testing::Test {
 protected:
  // What the system was told since the last call.
  Told told() { return std::exchange(told_, {}); }

  Told told_;
  ReadPermits permits_{[this](long reader) { told_.push_back(reader); }};
};

TEST_F(PermitsTest, NobodyIsPermittedWhileNobodyNeedsIt) {
  permits_.change({}, {});
  EXPECT_EQ(told(), Told{});
}

TEST_F(PermitsTest, OneReaderIsNamedAndSeveralTakeEverybody) {
  permits_.change({}, {11});
  EXPECT_EQ(told(), Told{11});
  permits_.change({}, {12});
  EXPECT_EQ(told(), Told{ReadPermits::kEverybody});
  permits_.change({}, {13});
  EXPECT_EQ(told(), Told{}) << "it holds already";
  permits_.change({11, 13}, {});
  EXPECT_EQ(told(), Told{12}) << "narrowed again";
  permits_.change({12}, {});
  EXPECT_EQ(told(), Told{ReadPermits::kNobody});
}

TEST_F(PermitsTest, GroupsThatNeedTheSameReaderAreCounted) {
  permits_.change({}, {11});
  permits_.change({}, {11});
  EXPECT_EQ(told(), Told{11});
  permits_.change({11}, {});
  EXPECT_EQ(told(), Told{}) << "the other group still needs it";
  permits_.change({11}, {});
  EXPECT_EQ(told(), Told{ReadPermits::kNobody});
}

TEST_F(PermitsTest, AReaderThatStaysIsNeverWithoutAPermission) {
  permits_.change({}, {11});
  (void)told();
  permits_.change({11}, {11});
  EXPECT_EQ(told(), Told{});
  permits_.change({11}, {12});
  EXPECT_EQ(told(), Told{12});
}

TEST_F(PermitsTest, WhatWasNeverNeededIsNotTakenBack) {
  permits_.change({5}, {});
  EXPECT_EQ(told(), Told{});
}

}  // namespace
}  // namespace braid::shm

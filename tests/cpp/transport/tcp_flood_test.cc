// SPDX-License-Identifier: Apache-2.0
// Too many strangers, or too few descriptors: members get in, and what is kept and logged has its bounds.
#include <fcntl.h>
#include <time.h>

#include "support/slowness.h"
#include "transport/descriptors.h"
#include "transport/flood.h"
#include "transport/stranger.h"
#include "transport/tcp/complaints.h"
#include "transport/tcp/guest_list.h"
#include "transport/tcp_group.h"

namespace braid::testing {
namespace {

double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What the strangers say: nothing, so that the system keeps them; half a word, so that it hands them to us; what no
// member says.
struct Strangers {
  std::string name, words;
};
class TcpFloodTest : public ::testing::TestWithParam<Strangers> {};

TEST_P(TcpFloodTest, MembersGetInAndLivingGroupsAreUnharmed) {
  const DescriptorLimit most(20'000);
  const KeptLog log;
  const size_t strangers = std::min<size_t>(5000, (most.now() - GuestList::kMost - 500) / 2);
  auto net = std::make_shared<TcpNet>(3, tcp_options());
  TcpTestGroup living(net, "living");
  exchange(living, 3, 1, 5000);
  const size_t before = open_descriptors();
  const Flood flood(net->endpoint(0).address(), strangers, GetParam().words);
  const size_t held = open_descriptors() - before - strangers;
  EXPECT_LE(held, GuestList::kMost + 10);

  const Deadline begun = Clock::now();
  TcpTestGroup newcomers(net, "newcomers");
  exchange(newcomers, 3, 1, 5000);
  EXPECT_LT(Clock::now() - begun, limit(milliseconds(5000)));
  exchange(living, 3, 2, 100'000);
  EXPECT_LE(log.take().size(), static_cast<size_t>(Complaints::kMostLines));
}

INSTANTIATE_TEST_SUITE_P(Strangers, TcpFloodTest,
                         ::testing::Values(Strangers{"silent", ""}, Strangers{"half_a_word", "bra"},
                                           Strangers{"another_protocol", "GET / HTTP/1.1\r\n\r\n"}),
                         [](const auto& strangers) { return strangers.param.name; });

// All descriptors of this process but `left` are taken while this lives.
class NoDescriptors {
 public:
  NoDescriptors() : limit_(open_descriptors() + 40) {
    for (;;) {
      Fd filler(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!filler) break;
      fillers_.push_back(std::move(filler));
    }
  }
  void leave(size_t count) { fillers_.resize(fillers_.size() - count); }

 private:
  DescriptorLimit limit_;
  std::vector<Fd> fillers_;
};

TEST(TcpDescriptorsTest, ConnectionsWaitForADescriptorAndAreSaidSoOnce) {
  const KeptLog log;
  TcpNet net(1, tcp_options());
  DoorbellWord bell;
  Mailbox mailbox(0, 2, bell);
  auto group = net.endpoint(0).join("g", kSecret, 0, 2, mailbox);
  Stranger first(net.endpoint(0).address());  // and with it the network thread
  EXPECT_TRUE(first.is_accepted(first.claim("g", kSecret, 1, 0, 0), kSecret));
  auto none = std::make_unique<NoDescriptors>();
  none->leave(1);
  Stranger member(net.endpoint(0).address());
  member.say(kMagic.data(), 1);
  const double cpu_before_s = cpu_seconds();
  std::this_thread::sleep_for(milliseconds(500));
  EXPECT_LT(cpu_seconds() - cpu_before_s, 0.25) << "the thread must not run in circles";
  ASSERT_EQ(log.take().size(), 1u);
  EXPECT_EQ(log.take()[0], "cannot accept connections: Too many open files");
  none.reset();
  // It said one byte already, so that the rest of an opening follows.
  Opening opening;
  opening.from_rank = 1;
  opening.to_rank = 0;
  opening.index = 1;
  opening.group = sha256(bytes_of(std::string("g")));
  member.say(reinterpret_cast<const char*>(&opening) + 1, sizeof opening - 1);
  Challenge challenge;
  ASSERT_TRUE(member.hear(&challenge, sizeof challenge));
  const Digest proof = prove_connect(kSecret, challenge, opening);
  member.say(&proof, sizeof proof);
  Digest answer{};
  EXPECT_TRUE(member.hear(&answer, sizeof answer));
  EXPECT_EQ(answer, prove_accept(kSecret, challenge, opening));
  group.value()->leave();
}

TEST(TcpDescriptorsTest, StrangersGiveUpTheirsForMembers) {
  const KeptLog log;
  TcpNet net(1, tcp_options());
  DoorbellWord bell;
  Mailbox mailbox(0, 2, bell);
  auto group = net.endpoint(0).join("g", kSecret, 0, 2, mailbox);
  std::vector<std::unique_ptr<Stranger>> strangers;
  for (int i = 0; i < 5; ++i) {
    strangers.push_back(std::make_unique<Stranger>(net.endpoint(0).address()));
    strangers.back()->say(kMagic.data(), 3);
    Challenge challenge;
    EXPECT_TRUE(strangers.back()->hear(&challenge, sizeof challenge));  // so it is held
  }
  NoDescriptors none;
  none.leave(1);
  Stranger member(net.endpoint(0).address());
  EXPECT_TRUE(member.is_accepted(member.claim("g", kSecret, 1, 0), kSecret));
  EXPECT_TRUE(strangers.front()->is_closed_within(1000));
  EXPECT_FALSE(strangers.back()->is_closed_within(10));
  group.value()->leave();
}

TEST(ComplaintsTest, EachReasonOnceInAWhileAndSoManyLinesAMinute) {
  Complaints complaints;
  Deadline now = Clock::now();
  EXPECT_EQ(complaints.about("10.0.0.1", "it is odd", now), "closed a connection from 10.0.0.1: it is odd");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(complaints.about("10.0.0.1", "it is odd", now), "");
  EXPECT_EQ(complaints.about("10.0.0.1", "it is late", now),
            "closed a connection from 10.0.0.1: it is late (and 5 more that were not logged)");
  int lines = 2;
  for (int i = 0; i < 5000; ++i)
    lines += !complaints.about("10.1.0." + std::to_string(i), "it is odd", now).empty();
  EXPECT_EQ(lines, Complaints::kMostLines);
  now += Complaints::kInterval;
  EXPECT_EQ(complaints.about("10.0.0.1", "it is odd", now), "");
  EXPECT_NE(complaints.about("", "no descriptors", now).find("no descriptors (and 4995 more"), std::string::npos);
  now += Complaints::kQuiet;
  EXPECT_NE(complaints.about("10.0.0.1", "it is odd", now), "");
  for (int i = 0; i < 5000; ++i) {
    now += Complaints::kInterval;
    EXPECT_NE(complaints.about("10.2.0." + std::to_string(i), "it is odd", now), "");
    EXPECT_LE(complaints.remembered(), Complaints::kRemembered);
  }
}

TEST(CrowdTest, TurnsAwayAtAModestPaceExceptWhileAGroupForms) {
  GuestList crowd;
  const Deadline begun = Clock::now();
  // As fast as it lets, for a second.
  int turned_away = 0;
  for (Deadline now = begun; now < begun + milliseconds(1000); now += milliseconds(1)) {
    for (int i = 0; i < 64 && crowd.rests_until(now) <= now; ++i, ++turned_away) crowd.turned_away(now);
  }
  EXPECT_GE(turned_away, 1000);
  EXPECT_LE(turned_away, 1400);
  const Deadline now = begun + milliseconds(1000);
  crowd.hurry(now);
  for (int i = 0; i < 100'000; ++i) crowd.turned_away(now);
  EXPECT_LE(crowd.rests_until(now), now);
  const Deadline after = now + GuestList::kHurry;
  EXPECT_LE(crowd.rests_until(after), after) << "what was done in a hurry is not held against it";
}

}  // namespace
}  // namespace braid::testing

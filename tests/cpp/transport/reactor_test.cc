// SPDX-License-Identifier: Apache-2.0
#include "transport/reactor.h"

#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>

namespace braid {
namespace {

class Pipe {
 public:
  Pipe() { EXPECT_EQ(::pipe(fds_), 0); }
  ~Pipe() {
    ::close(fds_[0]);
    ::close(fds_[1]);
  }
  int read_end() const { return fds_[0]; }
  void put() { EXPECT_EQ(::write(fds_[1], "x", 1), 1); }

 private:
  int fds_[2] = {-1, -1};
};

struct Counter final : EventHandler {
  explicit Counter(int fd_) : fd(fd_) {}
  void on_events(uint32_t) override {
    char c;
    if (::read(fd, &c, 1) == 1) ++count;
    if (body) body();
  }
  const int fd;
  std::atomic<int> count{0};
  std::function<void()> body;
};

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(milliseconds(1));
  return condition();
}

TEST(ReactorTest, CallsHandlersUntilTheyAreRemoved) {
  Reactor reactor;
  Pipe pipe;
  auto counter = std::make_shared<Counter>(pipe.read_end());
  const auto watch = reactor.add(pipe.read_end(), EPOLLIN, counter);
  ASSERT_TRUE(watch.ok());
  pipe.put();
  pipe.put();
  EXPECT_TRUE(eventually([&] { return counter->count == 2; }));

  ASSERT_TRUE(reactor.modify(watch.value(), 0).ok());
  reactor.quiesce();
  pipe.put();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(counter->count, 2);
  ASSERT_TRUE(reactor.modify(watch.value(), EPOLLIN).ok());
  EXPECT_TRUE(eventually([&] { return counter->count == 3; }));

  reactor.remove(watch.value());
  reactor.quiesce();
  EXPECT_EQ(counter.use_count(), 1) << "nothing keeps a removed handler";
  pipe.put();
  std::this_thread::sleep_for(milliseconds(20));
  EXPECT_EQ(counter->count, 3);
}

TEST(ReactorTest, TasksRunInOrderAndTimersWhenTheyAreDue) {
  Reactor reactor;
  std::mutex mutex;
  std::string order;
  std::promise<void> done;
  const auto note = [&](char c) {
    const std::lock_guard lock(mutex);
    order += c;
  };
  const Deadline start = Clock::now();
  reactor.at(start + milliseconds(60), [&] {
    note('d');
    done.set_value();
  });
  reactor.at(start + milliseconds(30), [&] { note('c'); });
  const Reactor::Timer never = reactor.at(start + milliseconds(40), [&] { note('x'); });
  reactor.run([&] { note('a'); });
  reactor.run([&] {
    note('b');
    reactor.cancel(never);
  });
  done.get_future().wait();
  EXPECT_GE(Clock::now() - start, milliseconds(60));
  EXPECT_EQ(order, "abcd");
}

TEST(ReactorTest, ATaskMayStartTasksTimersAndWatches) {
  Reactor reactor;
  std::promise<int> result;
  reactor.run([&] {
    reactor.quiesce();  // on its own thread: does not wait for itself
    reactor.run([&] { reactor.at(Clock::now(), [&] { result.set_value(7); }); });
  });
  EXPECT_EQ(result.get_future().get(), 7);
}

// The rule of removal at work: the remover holds the mutex that the handler wants.
TEST(ReactorTest, RemovingUnderTheHandlersMutexDoesNotDeadlock) {
  for (int round = 0; round < 200; ++round) {
    Reactor reactor;
    Pipe pipe;
    auto state = std::make_unique<std::pair<std::mutex, bool>>();
    std::atomic<bool> gone{false};
    std::atomic<int> late{0};
    auto counter = std::make_shared<Counter>(pipe.read_end());
    counter->body = [&, raw = state.get()] {
      if (gone) return;
      const std::lock_guard lock(raw->first);
      if (raw->second) ++late;
    };
    const auto watch = reactor.add(pipe.read_end(), EPOLLIN, counter);
    ASSERT_TRUE(watch.ok());
    pipe.put();
    pipe.put();
    {
      const std::lock_guard lock(state->first);
      gone = true;
      reactor.remove(watch.value());
    }
    reactor.quiesce();
    state.reset();  // a sanitizer would see a handler that still uses it
    EXPECT_EQ(late, 0);
  }
}

TEST(ReactorTest, QuiesceWaitsForTheRunningCall) {
  Reactor reactor;
  std::promise<void> entered;
  std::atomic<bool> ended{false};
  reactor.run([&] {
    entered.set_value();
    std::this_thread::sleep_for(milliseconds(50));
    ended = true;
  });
  entered.get_future().wait();
  reactor.quiesce();
  EXPECT_TRUE(ended);
}

TEST(ReactorTest, AForkedChildLeavesTheThreadAlone) {
  auto reactor = std::make_unique<Reactor>();
  Pipe pipe;
  auto counter = std::make_shared<Counter>(pipe.read_end());
  const auto watch = reactor->add(pipe.read_end(), EPOLLIN, counter);
  ASSERT_TRUE(watch.ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(5);
    reactor->remove(watch.value());  // would reach into the parent's epoll set
    reactor->quiesce();
    const bool refused = !reactor->add(pipe.read_end(), EPOLLIN, counter).ok();
    reactor.reset();
    ::_exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  pipe.put();
  EXPECT_TRUE(eventually([&] { return counter->count == 1; })) << "the parent still watches";
}

}  // namespace
}  // namespace braid

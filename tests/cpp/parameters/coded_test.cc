// SPDX-License-Identifier: Apache-2.0
// Services whose updates and values travel through codecs. Member 0 is the server, and reads its values as they are.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

class Coded : public EveryWire {};
INSTANTIATE_TEST_SUITE_P(Wires, Coded, ::testing::ValuesIn(wires()), wire_name);

ServiceSetup coded_setup(const Place& place, size_t elements, const std::string& push, const std::string& pull,
                         const std::string& rule = "add") {
  ServiceSetup setup = setup_of(place, elements, rule);
  setup.servers = {0};
  setup.server.coding = {codec_option(push).value(), codec_option(pull).value()};
  return setup;
}

Status install_at_0(ParameterService& service, const Place& place, const std::vector<float>& values) {
  return place.rank == 0 ? outcome(service, service.install(values.data())) : Status();
}

// Threads meet.
class Line {
 public:
  void meet(int members) {
    const int turn = 1 + (arrived_++ / members);
    while (arrived_.load() < turn * members) std::this_thread::yield();
  }

 private:
  std::atomic<int> arrived_{0};
};

TEST_P(Coded, WhatIsAppliedAndWhatIsKeptAreTheUpdates) {
  for (const std::string& codec : codec_texts()) {
    for (const size_t elements : {size_t{0}, size_t{1}, size_t{1001}}) {
      Line line;
      on_all_members(
          2, options(), [&](const Place& place) { return coded_setup(place, elements, codec, codec); },
          [&](const Place& place, ParameterService& service) {
            std::vector<float> values(elements);
            const std::vector<float> start = noise(elements, 99);
            ASSERT_TRUE(install_at_0(service, place, start).ok());
            ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
            EXPECT_EQ(values, start) << "the first values come as they are";
            line.meet(2);
            std::vector<float> sum = start;
            for (int step = 0; place.rank == 1 && step < 8; ++step) {
              const std::vector<float> update = noise(elements, step);
              for (size_t i = 0; i < elements; ++i) sum[i] += 0.5f * update[i];
              const auto pushed = service.push(update.data(), step % 3 == 0 ? nullptr : values.data(),
                                               table_of(elements, 1), 0.5f, nullptr);
              const Status done = outcome(service, pushed);
              ASSERT_TRUE(done.ok()) << done.message();
            }
            line.meet(2);
            static std::vector<float> applied;
            if (place.rank == 0) {
              ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
              applied = values;
              EXPECT_EQ(service.stats().worker_bytes, 0u);
            }
            line.meet(2);
            if (place.rank == 0) return;
            const std::vector<float> kept = service.residual(0);
            for (size_t i = 0; i < elements; ++i) ASSERT_NEAR(applied[i] + kept[i], sum[i], 1e-5f) << codec << i;
            EXPECT_GE(service.stats().worker_bytes, 2 * elements * sizeof(float));
            const uint64_t whole = 9 * 4 * elements;
            if (elements > 1000) {
              EXPECT_LT(service.stats().sent_bytes[0], whole) << codec;
            }
          });
    }
  }
}

TEST_P(Coded, ValuesComeCloserWithEachPull) {
  for (const std::string& codec : codec_texts()) {
    constexpr size_t kElements = 1000;
    Line line;
    on_all_members(
        2, options(), [&](const Place& place) { return coded_setup(place, kElements, "", codec); },
        [&](const Place& place, ParameterService& service) {
          std::vector<float> values(kElements);
          ASSERT_TRUE(install_at_0(service, place, values).ok());
          ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
          line.meet(2);
          const std::vector<float> wanted = noise(kElements, 5);
          if (place.rank == 0) {
            ASSERT_TRUE(
                outcome(service, service.push(wanted.data(), values.data(), table_of(kElements, 1), 1, nullptr))
                    .ok());
            EXPECT_EQ(values, wanted);
          }
          line.meet(2);
          if (place.rank == 0) return;
          const uint64_t before = service.stats().received_bytes[0];
          for (int again = 0; again < 60; ++again) {
            ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
          }
          const size_t bytes = 60 * body_bytes(codec_option(codec).value(), kElements);
          EXPECT_EQ(service.stats().received_bytes[0] - before, bytes);
          for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(values[i], wanted[i], 0.2f) << codec << " " << i;
        });
  }
}

TEST_P(Coded, RestoredValuesComeWhole) {
  constexpr size_t kElements = 1000;
  Line line;
  on_all_members(
      2, options(), [&](const Place& place) { return coded_setup(place, kElements, "sign", "sign"); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values = noise(kElements, 1);
        ASSERT_TRUE(install_at_0(service, place, values).ok());
        for (int i = 0; i < 2; ++i) {
          ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        }
        line.meet(2);
        const std::vector<float> saved = noise(kElements, 2);
        if (place.rank == 0) {
          ASSERT_TRUE(outcome(service, service.restore(saved.data(), {4})).ok());
        }
        line.meet(2);
        ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        EXPECT_EQ(values, saved);
      });
}

TEST_P(Coded, ARefusedPushIsKept) {
  constexpr size_t kElements = 300;
  on_all_members(
      2, options(), [&](const Place& place) { return coded_setup(place, kElements, "int8", "", "sgd"); },
      [&](const Place& place, ParameterService& service) {
        std::vector<float> values(kElements);
        ASSERT_TRUE(install_at_0(service, place, values).ok());
        ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
        if (place.rank == 0) return;
        const std::vector<float> update = noise(kElements, 1);
        const Status refused =
            outcome(service, service.push(update.data(), values.data(), table_of(kElements, -1), 1, nullptr));
        EXPECT_EQ(refused.code(), Code::kInvalidArgument);
        const std::vector<float> kept = service.residual(0);
        for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(kept[i], update[i], 1e-6f);
        const std::vector<float> zeros(kElements);
        ASSERT_TRUE(
            outcome(service, service.push(zeros.data(), values.data(), table_of(kElements, 1), 1, nullptr)).ok());
        for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(values[i] - service.residual(0)[i], -update[i], 1e-6f);
      });
}

// Server 1 vanishes, while a push of worker 2 waits for its turn there. That push goes with the next one, and the first
// values are whole.
TEST_P(Coded, ALostServerTakesNoUpdateAlong) {
  constexpr size_t kElements = 400;
  Line line;
  std::atomic<bool> is_gone{false};
  std::vector<float> theirs;
  at_all_places(3, options(), [&](const Place& place) {
    ServiceSetup setup = coded_setup(place, kElements, "int4", "int4");
    setup.servers = {1, 0};
    setup.shares = {1, 0};
    setup.server.mode = Mode::kRoundRobin;
    auto service = must_create(std::move(setup));
    ASSERT_NE(service, nullptr);
    std::vector<float> values = noise(kElements, 3);
    ASSERT_TRUE(install_at_0(*service, place, values).ok());
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    ASSERT_TRUE(outcome(*service, service->pull(values.data())).ok());
    const auto begin = [&](const std::vector<float>& update) {
      return service->push(update.data(), values.data(), table_of(kElements, 1), 1, nullptr);
    };
    const std::vector<float> first_update = noise(kElements, 0);
    const auto waits = place.rank == 2 ? begin(first_update) : nullptr;
    if (waits) {
      EXPECT_EQ(service->wait(*waits, Clock::now() + milliseconds(50), {}), Waited::kLate);
    }
    line.meet(3);
    if (place.rank == 1) {
      service.reset();
      is_gone = true;
      line.meet(3);
      line.meet(3);
      return;
    }
    while (!is_gone.load()) std::this_thread::yield();
    line.meet(3);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->rest()).ok());  // it takes no turn
    }
    std::vector<float> sum(kElements);
    int lost = 0;
    for (int step = 0; place.rank == 2 && step < 4; ++step) {
      const std::vector<float> update = noise(kElements, step);
      const auto pushed = step == 0 ? waits : begin(update);
      ASSERT_TRUE(outcome(*service, pushed).ok());
      lost += pushed->lost_parts();
      for (size_t i = 0; i < kElements; ++i) sum[i] += update[i];
      if (step == 0) {
        EXPECT_EQ(pushed->lost_parts(), 1);
        for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(service->residual(0)[i], update[i], 1e-6f);
        for (size_t i = 0; i < kElements; ++i) ASSERT_EQ(values[i], noise(kElements, 3)[i]) << "whole";
      }
    }
    std::vector<float> now(kElements);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->pull(now.data())).ok());  // takes part in the rescue
    }
    line.meet(3);
    if (place.rank == 0) {
      ASSERT_TRUE(outcome(*service, service->pull(now.data())).ok());
      theirs = now;
    } else {
      EXPECT_EQ(lost, 1);
      const std::vector<float> kept = service->residual(0);
      sum.resize(kElements);
      for (int again = 0; again < 60; ++again) {
        ASSERT_TRUE(outcome(*service, service->pull(now.data())).ok());
      }
      const std::vector<float> begun = noise(kElements, 3);
      for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(now[i] + kept[i], begun[i] + sum[i], 1e-3f) << i;
    }
    service->close(milliseconds(20'000), {});
  });
}

TEST_P(Coded, SyncGivesAllTheSameValues) {
  constexpr size_t kElements = 1000;
  std::vector<std::vector<float>> first(3);
  for (int run = 0; run < 2; ++run) {
    std::vector<std::vector<float>> last(3);
    on_all_members(
        3, options(),
        [&](const Place& place) {
          ServiceSetup setup = coded_setup(place, kElements, "qsgd", "bf16", "sgd");
          setup.server.mode = Mode::kSync;
          setup.server.buffers = 1;
          return setup;
        },
        [&](const Place& place, ParameterService& service) {
          std::vector<float> values(kElements);
          ASSERT_TRUE(install_at_0(service, place, values).ok());
          ASSERT_TRUE(outcome(service, service.pull(values.data())).ok());
          for (int step = 0; step < 10; ++step) {
            const std::vector<float> update = noise(kElements, step * 3 + place.rank);
            const auto pushed = service.push(update.data(), values.data(), table_of(kElements, 0.1f), 1, nullptr);
            ASSERT_TRUE(outcome(service, pushed).ok());
          }
          last[static_cast<size_t>(place.rank)] = values;
        });
    EXPECT_EQ(last[1], last[2]) << "they get the same differences";
    for (size_t i = 0; i < kElements; ++i) ASSERT_NEAR(last[0][i], last[1][i], 1e-3f);
    if (run == 0) first = last;
    EXPECT_EQ(last, first) << "the same bits in every run";
  }
}

TEST(CodedSetup, WhatDoesNotGoTogetherIsRefused) {
  at_all_places(1, Options(), [&](const Place& place) {
    const auto elastic = ParameterService::create(coded_setup(place, 10, "int8", "", "elastic"));
    EXPECT_TRUE(says(elastic.status(), "elastic takes no codec")) << elastic.status().message();
  });
  EXPECT_EQ(codec_option("int9").status().code(), Code::kInvalidArgument);
}

}  // namespace
}  // namespace braid::testing

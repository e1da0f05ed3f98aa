// SPDX-License-Identifier: Apache-2.0
// Encoded bodies that no peer of this version sends.
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "parameters/services.h"

namespace braid::testing {
namespace {

TEST(CodedCall, HasABodyOfTheCodecsSize) {
  const CallLimits limits{1000, 0, codec_from_text("int8").value()};
  Call call;
  call.kind = CallKind::kPush;
  call.count = 100;
  call.codec = number_of(limits.push);
  call.body_bytes = body_bytes(limits.push, 100);
  EXPECT_TRUE(check(call, limits).ok());
  ++call.body_bytes;
  EXPECT_FALSE(check(call, limits).ok());
  --call.body_bytes;
  call.codec = number_of(codec_from_text("bf16").value());
  EXPECT_NE(check(call, limits).message().find("not that of this service"), std::string::npos);
  call.codec = number_of(limits.push);
  EXPECT_FALSE(check(call, {1000, 0, std::nullopt}).ok());
  call.kind = CallKind::kInstall;
  EXPECT_FALSE(check(call, limits).ok()) << "only updates are encoded";
}

// A peer that sends rubbish in place of an encoded update.
TEST(CodedSession, RefusesAnUpdateThatDoesNotDecode) {
  Options options = options_for(wires()[0]);
  at_all_places(2, options, [&](const Place& place) {
    const auto engine = std::static_pointer_cast<EngineImpl>(place.engine);
    const auto end = place.rank == 0 ? Pair::kServer : Pair::kWorker;
    auto pair = Pair::form(engine, *place.store, end, "raw", "the other end", options);
    ASSERT_TRUE(pair.ok()) << pair.status().message();
    ServerOptions serving;
    serving.coding.push = codec_from_text("int8").value();
    if (place.rank == 0) {
      Server server(serving, {{0, 64}}, engine->bell());
      Session session(server, 1, "worker 1", std::move(pair).value());
      const auto until = Clock::now() + milliseconds(20'000);
      while (!session.is_over() && Clock::now() < until) session.poll();
      EXPECT_TRUE(session.is_over());
      EXPECT_EQ(server.stats().updates, 0u);
      return;
    }
    Call call;
    Answer answer;
    Request sends[3];
    Request receive;
    call.kind = CallKind::kJoin;
    pair.value()->send(Pair::Part::kCall, 0, bytes_of_object(std::as_const(call)), &sends[0]);
    pair.value()->recv(Pair::Part::kAnswer, 0, bytes_of_object(answer), &receive);
    while (!receive.done()) pair.value()->poll();
    ASSERT_EQ(answer.verdict, Verdict::kDone);
    call.kind = CallKind::kPush;
    call.count = 64;
    call.codec = number_of(serving.coding.push);
    const std::vector<std::byte> rubbish(body_bytes(serving.coding.push, 64), std::byte{7});
    call.body_bytes = rubbish.size();
    const uint64_t number = lane_number(lane_of(call), 0);
    pair.value()->send(Pair::Part::kCall, number, bytes_of_object(std::as_const(call)), &sends[1]);
    pair.value()->send(Pair::Part::kBody, number, rubbish, &sends[2]);
    receive.start();
    pair.value()->recv(Pair::Part::kAnswer, number, bytes_of_object(answer), &receive);
    while (!receive.done()) pair.value()->poll();
    EXPECT_TRUE(says(receive.status(), "does not decode")) << receive.status().message();
    pair.value()->close();
  });
}

}  // namespace
}  // namespace braid::testing

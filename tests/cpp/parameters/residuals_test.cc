// SPDX-License-Identifier: Apache-2.0
// What a worker's messages lack, and the values that come through a codec.
#include "parameters/residuals.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "parameters/coded_values.h"
#include "parameters/services.h"

namespace braid::testing {
namespace {

class EveryCodec : public ::testing::TestWithParam<std::string> {
 protected:
  Codec codec() const { return codec_from_text(GetParam()).value(); }
};
INSTANTIATE_TEST_SUITE_P(Codecs, EveryCodec, ::testing::ValuesIn(codec_texts()), codec_test_name);

const std::vector<size_t> kCounts{0, 1, 257, 10'007};

TEST_P(EveryCodec, MessagesAndResidualAreTheSumOfTheUpdates) {
  for (const size_t count : kCounts) {
    Residuals residuals(codec(), {count}, 3);
    std::vector<float> sum(count);
    std::vector<float> arrived(count);
    std::vector<std::byte> message(body_bytes(codec(), count));
    for (int step = 0; step < 6; ++step) {
      const std::vector<float> update = noise(count, step);
      for (size_t i = 0; i < count; ++i) sum[i] += 0.5f * update[i];
      residuals.encode(0, update.data(), 0.5f, message);
      if (count == 0) continue;
      if (step % 3 == 1) {  // lost
        residuals.give_back(0, message);
      } else if (step % 3 == 2) {
        ASSERT_TRUE(decode_add(codec(), message, arrived.data(), count).ok());
        residuals.give_back(0, update.data(), 0.25f);  // never sent
        for (size_t i = 0; i < count; ++i) sum[i] += 0.25f * update[i];
      } else {
        ASSERT_TRUE(decode_add(codec(), message, arrived.data(), count).ok());
      }
    }
    const std::vector<float> lacking = residuals.values(0);
    for (size_t i = 0; i < count; ++i) ASSERT_NEAR(arrived[i] + lacking[i], sum[i], 2e-5f) << i << " of " << count;
  }
}

TEST_P(EveryCodec, MessagesHaveTheSameBitsInEveryRun) {
  constexpr size_t kCount = 1000;
  const auto run = [&](int worker) {
    Residuals residuals(codec(), {kCount, kCount}, worker);
    std::vector<std::byte> all;
    for (int step = 0; step < 4; ++step) {
      std::vector<std::byte> message(body_bytes(codec(), kCount));
      residuals.encode(step % 2, noise(kCount, step).data(), 1, message);
      all.insert(all.end(), message.begin(), message.end());
    }
    return all;
  };
  EXPECT_EQ(run(1), run(1));
  EXPECT_EQ(run(1) == run(2), GetParam() != "qsgd" && !GetParam().starts_with("random_k"))
      << "workers draw at random apart from each other";
}

TEST(Residuals, StayFinite) {
  const Codec int8 = codec_from_text("int8").value();
  Residuals residuals(int8, {4}, 0);
  std::vector<std::byte> message(body_bytes(int8, 4));
  const std::vector<float> wild{1, std::nanf(""), std::numeric_limits<float>::infinity(), 1};
  residuals.encode(0, wild.data(), 1, message);
  residuals.give_back(0, message);
  residuals.give_back(0, wild.data(), 1);
  EXPECT_EQ(residuals.values(0), (std::vector<float>{1, 0, 0, 1}));
}

TEST(Residuals, GoWithAPushThatNeedsNoMessage) {
  Residuals residuals(codec_from_text("top_k:0.25").value(), {4}, 0);
  const std::vector<float> update{4, 1, 1, 1};
  EXPECT_EQ(residuals.take(0, update.data(), 1), nullptr) << "nothing is lacking yet";
  std::vector<std::byte> message(body_bytes(residuals.codec(), 4));
  residuals.encode(0, update.data(), 1, message);
  EXPECT_EQ(residuals.bytes(), 16u);
  const Floats whole = residuals.take(0, update.data(), 2);
  EXPECT_EQ(std::vector<float>(whole.get(), whole.get() + 4), (std::vector<float>{8, 3, 3, 3}));
  EXPECT_EQ(residuals.bytes(), 0u);
  Residuals exact(std::nullopt, {4}, 0);
  exact.give_back(0, update.data(), 1);
  EXPECT_EQ(exact.take(0, update.data(), 1), nullptr);
}

// ---- Values

class BothEnds {
 public:
  BothEnds(const Codec& codec, size_t count) : codec_(codec), server_(codec, 1), got(count) {}
  // True if the values themselves came.
  bool send(const std::vector<float>& values, uint64_t beginning = 1) {
    std::vector<float> scratch = values;
    const auto message = server_.make(0, scratch.data(), values.size(), beginning, scratch.data());
    if (!message.codec) {
      if (!got.empty()) std::memcpy(got.data(), message.bytes.data(), message.bytes.size());
      worker_.take(0, got.data(), got.size());
      return true;
    }
    EXPECT_TRUE(worker_.add(0, codec_, message.bytes, got.data(), got.size()).ok());
    return false;
  }
  float error(const std::vector<float>& values) const {
    float most = 0;
    for (size_t i = 0; i < values.size(); ++i) most = std::max(most, std::abs(values[i] - got[i]));
    return most;
  }

 private:
  const Codec codec_;
  CodedValues server_;
  ReceivedValues worker_;

 public:
  std::vector<float> got;
};

TEST_P(EveryCodec, ErrorsOfValuesDoNotAddUp) {
  for (const size_t count : kCounts) {
    BothEnds ends(codec(), count);
    std::vector<float> values = noise(count, 0);
    EXPECT_TRUE(ends.send(values));
    EXPECT_EQ(ends.got, values);
    for (int step = 1; step <= 50; ++step) {
      const std::vector<float> change = noise(count, step);
      for (size_t i = 0; i < count; ++i) values[i] += 0.1f * change[i];
      if (step % 4 != 0) continue;  // the worker leaves out versions
      EXPECT_EQ(ends.send(values), count == 0);
    }
    const float before = ends.error(values);
    for (int again = 0; again < 60; ++again) ends.send(values);
    const float part = GetParam() == "sign" ? 0.5f : 0.1f;  // whose steps are as large as the mean of its block
    EXPECT_LE(ends.error(values), before * part + 1e-6f) << "what was lacking comes later";
  }
}

TEST_P(EveryCodec, ValuesThatBeginAnewComeWhole) {
  constexpr size_t kCount = 333;
  BothEnds ends(codec(), kCount);
  std::vector<float> values = noise(kCount, 0);
  ends.send(values);
  EXPECT_FALSE(ends.send(noise(kCount, 1)));
  values = noise(kCount, 2);
  EXPECT_TRUE(ends.send(values, 2)) << "restored";
  EXPECT_EQ(ends.got, values);
  EXPECT_FALSE(ends.send(noise(kCount, 3), 2));
  values[7] = std::nanf("");
  EXPECT_TRUE(ends.send(values, 2)) << "a NaN would spread over its block";
  EXPECT_TRUE(std::isnan(ends.got[7]));
  EXPECT_EQ(ends.got[8], values[8]);
  values[7] = 1;
  EXPECT_TRUE(ends.send(values, 2));
  EXPECT_EQ(ends.got, values);
}

TEST_P(EveryCodec, ADifferenceThatDoesNotDecodeChangesNothing) {
  ReceivedValues received;
  std::vector<float> out(8, 5.0f);
  std::vector<std::byte> message(body_bytes(codec(), 8));
  EXPECT_EQ(received.add(0, codec(), message, out.data(), 8).code(), Code::kMismatch) << "nothing to add it to";
  const std::vector<float> values = noise(8, 0);
  received.take(0, values.data(), 8);
  EXPECT_EQ(received.add(0, codec(), message, out.data(), 8).code(), Code::kMismatch) << "zeros are no message";
  encode(codec(), values.data(), 8, 1, nullptr, 0, message);
  EXPECT_EQ(received.add(0, codec(), std::span(message).first(message.size() - 1), out.data(), 8).code(),
            Code::kMismatch);
  EXPECT_EQ(received.add(0, codec(), message, out.data(), 7).code(), Code::kMismatch);
  EXPECT_EQ(out, std::vector<float>(8, 5.0f));
  EXPECT_TRUE(received.add(0, codec(), message, out.data(), 8).ok());
}

}  // namespace
}  // namespace braid::testing

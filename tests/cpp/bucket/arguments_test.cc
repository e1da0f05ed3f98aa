// SPDX-License-Identifier: Apache-2.0
// What a bucket refuses, with what text, and that it then has written nothing.
#include <gtest/gtest.h>

#include <limits>

#include "bucket/tensors.h"

namespace braid::testing {
namespace {

constexpr size_t kMost = std::numeric_limits<size_t>::max();

::testing::AssertionResult refused(const Status& status, const std::string& text) {
  if (status.code() != Code::kInvalidArgument) return ::testing::AssertionFailure() << "not refused";
  if (status.message().find(text) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.message();
}

std::string why_not(std::vector<BucketTensor> tensors) {
  return Bucket::create(std::move(tensors)).status().message();
}

TEST(BucketArguments, NothingIsABucketToo) {
  const auto bucket = Bucket::create({});
  ASSERT_TRUE(bucket.ok());
  EXPECT_EQ(bucket.value().elements(), 0u);
  EXPECT_TRUE(bucket.value().pack({0, 0}, 1, {}).ok());
  EXPECT_TRUE(bucket.value().unpack({}, {0, 0}, 1).ok());
  EXPECT_TRUE(Bucket::create({{nullptr, 0, DType::kFloat16}}).ok());
}

TEST(BucketArguments, RefusesNullOtherDTypesAndTooMuch) {
  float value = 0;
  auto* const at = reinterpret_cast<std::byte*>(&value);
  EXPECT_EQ(why_not({{at, 1, DType::kFloat32}, {nullptr, 5, DType::kFloat32}}),
            "bucket: tensor 1 has 5 elements at a null address");
  EXPECT_EQ(why_not({{at, 1, DType::kInt32}}),
            "bucket: tensor 0 is of int32; there are float64, float32, float16 and bfloat16");
  EXPECT_EQ(why_not({{at, kMost, DType::kFloat32}}),
            "bucket: tensor 0 brings the bucket to more elements than can be counted");
  EXPECT_EQ(why_not({{at, 1, DType::kFloat32}, {at, kMost / 16, DType::kFloat16}}),
            "bucket: tensor 1 brings the bucket to more elements than can be counted");
}

TEST(BucketArguments, RefusesTensorsThatOverlap) {
  std::byte memory[64];
  const auto at = [&](size_t byte, size_t elements, DType dtype) {
    return BucketTensor{memory + byte, elements, dtype};
  };
  EXPECT_EQ(why_not({at(32, 4, DType::kFloat32), at(0, 8, DType::kFloat16), at(46, 2, DType::kBFloat16)}),
            "bucket: tensors 0 and 2 overlap in memory");
  EXPECT_EQ(why_not({at(0, 1, DType::kFloat64), at(0, 1, DType::kFloat64)}),
            "bucket: tensors 0 and 1 overlap in memory");
  EXPECT_EQ(why_not({at(16, 4, DType::kFloat32), at(0, 8, DType::kFloat16), at(20, 0, DType::kFloat32)}), "");
}

class BucketCalls : public ::testing::Test {
 protected:
  BucketCalls() : tensors_(make()), bucket_(tensors_.bucket()), before_(tensors_.bytes()) {}
  void TearDown() override {
    EXPECT_EQ(tensors_.bytes(), before_);
    for (const float value : floats_) EXPECT_EQ(value, 7.0f);
    for (const std::byte byte : message_) EXPECT_EQ(byte, std::byte{9});
  }
  static Tensors make() {
    Tensors tensors;
    tensors.add(DType::kBFloat16, 10);
    tensors.add(DType::kFloat32, 20);
    tensors.fill(1);
    return tensors;
  }
  std::span<float> floats(size_t count) { return std::span(floats_).first(count); }
  Bytes inside_tensor() { return {tensors_.table[1].data, 16}; }

  Tensors tensors_;
  Bucket bucket_;
  std::vector<std::vector<std::byte>> before_;
  std::vector<float> floats_ = std::vector<float>(64, 7.0f);
  std::vector<std::byte> message_ = std::vector<std::byte>(80, std::byte{9});  // fp16 of 30
  const Codec codec_ = codec_from_text("fp16").value();
  const Codec sparse_ = codec_from_text("top_k:0.1").value();
};

TEST_F(BucketCalls, RefuseRangesOutside) {
  for (const BucketRange range : {BucketRange{0, 31}, {31, 31}, {5, 4}, {kMost, kMost}, {kMost, 3}, {0, kMost}}) {
    EXPECT_TRUE(refused(bucket_.pack(range, 1, floats(31)), "is not within 30 elements"));
    EXPECT_TRUE(refused(bucket_.unpack(floats(31), range, 1), "is not within 30 elements"));
    EXPECT_TRUE(refused(bucket_.encode(codec_, range, 1, {}, 0, message_), "is not within 30 elements"));
    EXPECT_TRUE(refused(bucket_.decode(codec_, message_, range, 1), "is not within 30 elements"));
  }
}

TEST_F(BucketCalls, RefuseMemoryOfAnotherSize) {
  EXPECT_TRUE(refused(bucket_.pack({0, 30}, 1, floats(29)), "pack: 29 floats for a range of 30"));
  EXPECT_TRUE(refused(bucket_.unpack(floats(31), {0, 30}, 1), "unpack: 31 floats for a range of 30"));
  EXPECT_TRUE(refused(bucket_.encode(codec_, {0, 30}, 1, floats(31), 0, message_), "31 floats for a range of 30"));
  const Bytes shorter(message_.data(), 79);
  EXPECT_TRUE(refused(bucket_.encode(codec_, {0, 30}, 1, {}, 0, shorter),
                      "encode: a message of 79 bytes, but fp16 takes 80 for 30 elements"));
  EXPECT_TRUE(refused(bucket_.decode(codec_, shorter, {0, 30}, 1),
                      "decode: a message of 79 bytes, but fp16 takes 80 for 30 elements"));
}

TEST_F(BucketCalls, RefuseMemoryOfTheirTensors) {
  std::vector<float> mine(30);
  Tensors aligned;
  aligned.table.push_back({reinterpret_cast<std::byte*>(mine.data()), 30, DType::kFloat32});
  const Bucket bucket = aligned.bucket();
  EXPECT_TRUE(refused(bucket.pack({0, 30}, 1, mine), "pack: out shares memory with tensor 0"));
  EXPECT_TRUE(refused(bucket.unpack(mine, {0, 30}, 1), "unpack: the flat vector shares memory with tensor 0"));
  EXPECT_TRUE(refused(bucket.encode(codec_, {0, 30}, 1, mine, 0, message_), "the residual shares memory"));
  EXPECT_TRUE(refused(bucket_.encode(codec_, {0, 0}, 1, {}, 0, inside_tensor()), "shares memory with tensor 1"));
  EXPECT_TRUE(refused(bucket_.decode(codec_, inside_tensor(), {0, 0}, 1), "shares memory with tensor 1"));
  const Bytes residual = std::as_writable_bytes(floats(30)).first(80);
  EXPECT_TRUE(refused(bucket_.encode(codec_, {0, 30}, 1, floats(30), 0, residual), "overlaps the message"));
}

TEST_F(BucketCalls, RefuseAMessageOfAnother) {
  EXPECT_TRUE(refused(bucket_.decode(codec_, message_, {0, 30}, 1), "its header is another's"));
  std::vector<std::byte> top(encoded_bytes(sparse_, 30));
  std::vector<float> values(30, 1.0f);
  encode(sparse_, values.data(), 30, 1, nullptr, 0, top);
  top[16] = std::byte{200};  // a position past the end
  EXPECT_TRUE(refused(bucket_.decode(sparse_, top, {0, 30}, 1), "out of order or range"));
}

}  // namespace
}  // namespace braid::testing

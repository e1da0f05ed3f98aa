// SPDX-License-Identifier: Apache-2.0
// What one node does with what arrives; lossy_test.cc has whole operations.
#include "executor/coding.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support/every_algorithm.h"

namespace braid::testing {
namespace {

TEST(Coding, NamesTheRankWhoseMessageCannotBeRead) {
  const auto schedule =
      planned(*find_algorithm(CollectiveKind::kAllReduce, "direct"), {CollectiveKind::kAllReduce, 3, 0});
  std::vector<float> in(300, 1), out(300);
  Operands operands{
      DType::kFloat32, ReduceOp::kSum, {std::as_bytes(std::span(in))}, {std::as_writable_bytes(std::span(out))}};
  operands.lossy = Lossy{codec_from_text("int8").value()};
  const Layout layout(schedule->schedule(), operands, 1 << 20);
  const Coding coding(*schedule, 0, operands, layout, {0, 1, 2});
  std::vector<std::byte> memory(coding.segment_bytes());
  CodedSegment segment;
  segment.begin(memory.data());
  const Round& round = schedule->schedule().programs[0][0];
  const auto step =
      std::find_if(round.begin(), round.end(), [](const Step& one) { return one.op == Op::kReduce; });
  const Bytes target = layout.write(step->target, 0, nullptr);
  for (size_t source = 0; source < step->sources.size(); ++source) {
    const Node from = step->sources[source].from;
    if (from < 0) continue;
    const Bytes landing = coding.landing(segment, *step, source, target);
    if (from == 1) encode(operands.lossy->codec, in.data(), 100, 1, nullptr, 0, landing);
    if (from == 2) std::fill(landing.begin(), landing.end(), std::byte{0x5a});
  }
  const std::byte* const own = layout.read({Buffer::kInput, 0, 1}, 0, nullptr).data();
  const Status status = coding.reduce(segment, *step, 0, {&own, 1}, target);
  EXPECT_EQ(status.code(), Code::kMismatch);
  EXPECT_EQ(status.rank(), 2);
  EXPECT_NE(status.message().find("rank 2 sent what cannot be read: int8 message"), std::string::npos)
      << status.message();
}

}  // namespace
}  // namespace braid::testing

// SPDX-License-Identifier: Apache-2.0
#include "communicator/explanation.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/dtype.h"
#include "communicator/checks.h"
#include "communicator/communicator.h"
#include "schedule/segments.h"
#include "tuner/tuner.h"

namespace braid {
namespace {

template <class Kind>
Status unknown(const char* what, const std::string& name, int count) {
  std::string text = "unknown " + std::string(what) + " \"" + name + "\"; there are ";
  for (int i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::string(name_of(static_cast<Kind>(i)));
  return {Code::kInvalidArgument, text};
}

// The part of the vector that each owner has; empty if all parts are equal.
std::vector<double> parts_of(const std::vector<uint64_t>& shares) {
  std::vector<double> parts(shares.begin(), shares.end());
  const double sum = std::accumulate(parts.begin(), parts.end(), 0.0);
  for (double& part : parts) part /= sum;
  return parts;
}

std::string microseconds(double seconds) {
  return std::to_string(static_cast<int64_t>(std::ceil(1e6 * seconds))) + " us";
}

template <class Explain>
Result<Explanation> explain_names(const std::string& collective, const std::string& dtype, const std::string& op,
                                  const std::string& codec_text, const Explain& explain) {
  const auto kind = collective_from_name(collective);
  const auto element = dtype_from_name(dtype);
  const auto reduction = reduce_op_from_name(op);
  if (!kind) return unknown<CollectiveKind>("collective", collective, kCollectiveKindCount);
  if (!element) return unknown<DType>("dtype", dtype, kDTypeCount);
  if (!reduction) return unknown<ReduceOp>("reduction", op, kReduceOpCount);
  if (codec_text.empty()) return explain(*kind, *element, *reduction, std::nullopt);
  const auto codec = codec_from_text(codec_text);
  if (!codec.ok()) return codec.status();
  return explain(*kind, *element, *reduction, std::optional(codec.value()));
}

}  // namespace

Result<Explanation> explain(Tuner& tuner, int ranks, CollectiveKind kind, DType dtype, ReduceOp op, Node root,
                            int64_t bytes, const std::optional<Codec>& codec) {
  if (bytes < 0) return Status(Code::kInvalidArgument, std::to_string(bytes) + " bytes: a size is never negative");
  const bool reduces = is_reduction(kind) && kind != CollectiveKind::kBarrier;
  if (reduces && !is_defined(dtype, op)) return Status(Code::kInvalidArgument, undefined_text(dtype, op));
  if (codec) {
    if (Status bad = check_lossy(kind, dtype, op, *codec); !bad.ok()) return bad;
  }
  if (kind == CollectiveKind::kBarrier) bytes = 0;
  const Collective collective{kind, ranks, has_root(kind) ? root : 0};
  const auto made = tuner.explain(collective, dtype, op, is_size_agreed(kind) ? bytes : 0, bytes, codec);
  if (!made.ok()) return made.status();
  const Choice& choice = made.value();
  const Schedule& schedule = choice.schedule->schedule();
  return Explanation{std::string(name_of(kind)),
                     choice.algorithm,
                     choice.predicted_s,
                     choice.runners_up,
                     choice.reason,
                     parts_of(choice.shares),
                     choice.chunk_bytes,
                     choice.chunk_bytes > 0 ? segments_of(schedule, bytes, choice.chunk_bytes) : 1};
}

Explanation with_copies(Explanation explanation, const DeviceCopies& copies, int ranks, Node root, int64_t bytes) {
  const CollectiveKind kind = collective_from_name(explanation.collective).value_or(CollectiveKind::kBarrier);
  if (kind == CollectiveKind::kBarrier) return explanation;
  const Collective collective{kind, ranks, has_root(kind) ? root : 0};
  const int chunks = is_vector(kind) ? 1 : ranks;
  int down = 0, up = 0;
  for (Node rank = 0; rank < ranks; ++rank) {
    down = std::max(down, input_chunks(collective, chunks, rank));
    up = std::max(up, output_chunks(collective, chunks, rank));
  }
  const double down_s = copies.rates.down.of(bytes * down / chunks);
  const double up_s = copies.rates.up.of(bytes * up / chunks);
  const int64_t pieces =
      copies.piece_bytes > 0 ? std::max<int64_t>(1, (bytes + copies.piece_bytes - 1) / copies.piece_bytes) : 1;
  const auto with = [&](double network_s) {
    const double longest_s = std::max({down_s, network_s, up_s});
    return longest_s + (down_s + network_s + up_s - longest_s) / static_cast<double>(pieces);
  };
  explanation.copies_s = down_s + up_s;
  explanation.predicted_s = with(explanation.predicted_s);
  for (Candidate& candidate : explanation.runners_up) candidate.predicted_s = with(candidate.predicted_s);
  explanation.reason += "; with " + microseconds(explanation.copies_s) + " of copies to and from the device";
  return explanation;
}

Result<Explanation> explain(Communicator& group, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec,
                            const std::optional<DeviceCopies>& device) {
  auto explained =
      explain_names(collective, dtype, op, codec, [&](auto kind, auto element, auto reduction, const auto& with) {
        return group.explain(kind, element, reduction, root, bytes, with);
      });
  if (!device || !explained.ok()) return explained;
  return with_copies(std::move(explained).value(), *device, group.ranks(), root, bytes);
}

Result<Explanation> explain(Tuner& tuner, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec) {
  return explain_names(collective, dtype, op, codec,
                       [&](auto kind, auto element, auto reduction, const auto& with) {
                         return explain(tuner, tuner.topology().nodes(), kind, element, reduction, root, bytes,
                                        tuner.topology().host_count() > 1 ? with : std::optional<Codec>());
                       });
}

}  // namespace braid

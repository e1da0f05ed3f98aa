// SPDX-License-Identifier: Apache-2.0
// Reductions by the local leg whose messages between hosts are encoded.
#include <optional>
#include <vector>

#include "c10d/backend.h"
#include "c10d/calls.h"
#include "c10d/local_leg.h"
#include "communicator/checks.h"

namespace braid::adapter {
namespace {

bool fits(const at::Tensor& residual, const at::Tensor& whole) {
  return residual.scalar_type() == at::kFloat && residual.device() == whole.device() && residual.is_contiguous() &&
         residual.numel() == whole.numel();
}

std::optional<DType> coded_dtype(at::ScalarType type) {
  switch (type) {
    case at::kFloat: return DType::kFloat32;
    case at::kHalf: return DType::kFloat16;
    case at::kBFloat16: return DType::kBFloat16;
    default: return std::nullopt;
  }
}

std::vector<at::Tensor> residuals_of(const LegCodec& codec) {
  return codec.residual ? std::vector<at::Tensor>{*codec.residual} : std::vector<at::Tensor>();
}

Backend& between_hosts(const LegConfig& config) { return static_cast<Backend&>(*config.across); }

}  // namespace

bool LocalLeg::takes_lossy(const at::Tensor& whole, const LegCodec& codec, const ::c10d::ReduceOp& op) const {
  const auto parsed = codec_from_text(codec.codec);
  const auto dtype = coded_dtype(whole.scalar_type());
  const bool averages = op.op_ == ::c10d::ReduceOp::AVG;
  if (!parsed.ok() || !dtype || (!averages && op.op_ != ::c10d::ReduceOp::SUM)) return false;
  const auto reduce = averages ? ReduceOp::kAvg : ReduceOp::kSum;
  return check_lossy(CollectiveKind::kAllReduce, *dtype, reduce, parsed.value()).ok() &&
         (!codec.residual || fits(*codec.residual, whole));
}

LocalLeg::Work LocalLeg::lossy_all_reduce(const at::Tensor& tensor, const LegCodec& codec,
                                          const ::c10d::AllreduceOptions& options, const std::string& title) {
  const Call call{::c10d::OpType::ALLREDUCE, "all_reduce", title, {tensor}, {tensor}, residuals_of(codec)};
  return all_reduce(call, options, [&](const at::Tensor& shard, int64_t begin) {
    std::optional<at::Tensor> residual;
    if (codec.residual) residual = codec.residual->detach().view({-1}).narrow(0, begin, shard.numel());
    const bool averages = options.reduceOp.op_ == ::c10d::ReduceOp::AVG;
    if (auto steps = config_.coder->all_reduce(shard, codec.codec, residual, averages)) return *steps;
    return joining(between_hosts(config_).lossy_allreduce(shard, codec.codec, residual, codec.seed, options));
  });
}

LocalLeg::Work LocalLeg::lossy_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                              const LegCodec& codec, const ::c10d::ReduceScatterOptions& options,
                                              const std::string& title) {
  const Call call{
      ::c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", title, {input}, {output}, residuals_of(codec)};
  return reduce_scatter(call, options, [&](const at::Tensor& mine, const at::Tensor& column) {
    std::optional<at::Tensor> residual;
    at::Tensor lost;  // this rank's place on each host
    if (codec.residual) {
      const int64_t place = places_[static_cast<size_t>(members_->rank)];
      lost = codec.residual->detach().view({-1, ranks_per_host(), mine.numel()}).select(1, place);
      residual = lost.contiguous().view({-1});
    }
    const bool averages = options.reduceOp.op_ == ::c10d::ReduceOp::AVG;
    if (const auto steps = config_.coder->reduce_scatter(mine, column, codec.codec, residual, averages)) {
      for (const auto& step : *steps) step();
    } else {
      join(between_hosts(config_).lossy_reduce_scatter(mine, column, codec.codec, residual, codec.seed, options));
    }
    if (residual) lost.copy_(residual->view(lost.sizes()));
  });
}

}  // namespace braid::adapter

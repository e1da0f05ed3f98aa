// SPDX-License-Identifier: Apache-2.0
// The collectives of the local leg, as calls of both backends.
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>

#include "c10d/local_leg.h"
#include "c10d/mutations.h"
#include "c10d/tensors.h"

namespace braid::adapter {
namespace {

// Large enough for a backend's full rate, small enough for the legs of a tensor to overlap.
constexpr int64_t kChunkBytes = int64_t{4} << 20;

// What every backend adds up, and the hosts' sums of which make the same sum. All else takes the flat way.
bool is_for_legs(at::ScalarType type, const ::c10d::ReduceOp& op) {
  constexpr std::array kFloats = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
  constexpr std::array kIntegers = {at::kInt, at::kLong, at::kChar, at::kByte};
  const auto among = [type](const auto& types) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  switch (op.op_) {
    case ::c10d::ReduceOp::SUM:
    case ::c10d::ReduceOp::PRODUCT:
    case ::c10d::ReduceOp::MIN:
    case ::c10d::ReduceOp::MAX: return among(kFloats) || among(kIntegers);
    case ::c10d::ReduceOp::AVG: return among(kFloats);
    default: return false;
  }
}

// The names of the same.
bool is_for_legs(const std::string& dtype, const std::string& op) {
  constexpr std::array kFloats = {"float64", "float32", "float16", "bfloat16"};
  constexpr std::array kIntegers = {"int32", "int64", "int8", "uint8"};
  constexpr std::array kOps = {"sum", "avg", "product", "min", "max"};
  const auto among = [](const std::string& name, const auto& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  return among(op, kOps) && (among(dtype, kFloats) || (op != "avg" && among(dtype, kIntegers)));
}

int64_t bytes_in(const at::Tensor& tensor) { return static_cast<int64_t>(tensor.nbytes()); }

bool is_avg(const ::c10d::ReduceOp& op) { return op.op_ == ::c10d::ReduceOp::AVG; }
// Gloo has no AVG, so the local leg adds up.
::c10d::ReduceOp local_op(const ::c10d::ReduceOp& op) {
  return is_avg(op) ? ::c10d::ReduceOp(::c10d::ReduceOp::SUM) : op;
}

bool is_writable(const at::Tensor& tensor) { return at::has_internal_overlap(tensor) != at::MemOverlap::Yes; }

at::Tensor flat_copy_unless_in_one_piece(const at::Tensor& tensor) {
  return (in_one_piece(tensor) ? tensor.detach()
                               : tensor.clone(at::MemoryFormat::Contiguous).resolve_conj().resolve_neg())
      .view({-1});
}

at::Tensor as_bytes(const at::Tensor& flat) { return flat.view(at::kByte); }

// Writes a result to its tensor, unless it lies there already.
void put(const at::Tensor& tensor, const at::Tensor& flat) {
  if (tensor.data_ptr() != flat.data_ptr()) tensor.copy_(flat.view(tensor.sizes()));
}

// Consecutive parts of a flat tensor, each of a number of elements that `multiple_of` divides, but the last.
std::vector<at::Tensor> chunks_of(const at::Tensor& flat, int64_t multiple_of) {
  const int64_t aim = std::max<int64_t>(kChunkBytes / static_cast<int64_t>(flat.element_size()), 1);
  const int64_t size = (aim + multiple_of - 1) / multiple_of * multiple_of;
  std::vector<at::Tensor> chunks;
  for (int64_t at = 0; at < flat.numel(); at += size) {
    chunks.push_back(flat.narrow(0, at, std::min(size, flat.numel() - at)));
  }
  return chunks;
}

template <class Options, class Given>
Options with_timeout(const Given& given) {
  Options options;
  options.timeout = given.timeout;
  return options;
}

}  // namespace

bool LocalLeg::takes_all_reduce(const at::Tensor& tensor, const ::c10d::ReduceOp& op) const {
  return takes(tensor) && is_for_legs(tensor.scalar_type(), op) && is_writable(tensor) &&
         config_.table.pays("all_reduce", bytes_in(tensor));
}

bool LocalLeg::takes_broadcast(const at::Tensor& tensor) const {
  return takes(tensor) && is_writable(tensor) && config_.table.pays("broadcast", bytes_in(tensor));
}

bool LocalLeg::takes_blocks(const at::Tensor& output, const at::Tensor& input) const {
  return by_host_ && takes(output) && takes(input) && output.device() == input.device() &&
         output.scalar_type() == input.scalar_type() && is_writable(output) &&
         output.numel() == input.numel() * static_cast<int64_t>(places_.size());
}

bool LocalLeg::takes_all_gather(const at::Tensor& output, const at::Tensor& input) const {
  return takes_blocks(output, input) && config_.table.pays("all_gather", bytes_in(output));
}

bool LocalLeg::takes_reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                    const ::c10d::ReduceOp& op) const {
  return takes_blocks(input, output) && is_for_legs(output.scalar_type(), op) && is_writable(output) &&
         config_.table.pays("reduce_scatter", bytes_in(input));
}

LegChoice LocalLeg::choice(const std::string& operation, int64_t bytes, const std::string& dtype,
                           const std::string& op, c10::DeviceType device) const {
  const std::string& name = config_.name;
  const bool gathers = operation == "all_gather" || operation == "reduce_scatter";
  const bool reduces = operation == "all_reduce" || operation == "reduce_scatter";
  if (!carries(config_, device)) return {false, name + " carries no tensors of this device"};
  if (!gathers && !reduces && operation != "broadcast") return {false, name + " carries no " + operation};
  if (gathers && !by_host_) return {false, "the ranks of a host do not have consecutive numbers"};
  if (reduces && !is_for_legs(dtype, op)) return {false, name + " carries no " + op + " of " + dtype};
  const bool pays = config_.table.pays(operation, bytes);
  const std::string model = config_.table.in_words(operation, bytes);
  const std::string does = name + (pays ? " carries the part within hosts" : " is not used for this size");
  return {pays, model.empty() ? does : does + ": " + model};
}

LocalLeg::Work LocalLeg::all_reduce(const at::Tensor& tensor, const ::c10d::AllreduceOptions& options,
                                    const std::string& title) {
  return all_reduce({::c10d::OpType::ALLREDUCE, "all_reduce", title, {tensor}, {tensor}}, options,
                    [&](const at::Tensor& shard, int64_t) {
                      std::vector<at::Tensor> shards{shard};
                      auto between = with_timeout<::c10d::AllreduceOptions>(options);
                      between.reduceOp = options.reduceOp;
                      return joining(config_.across->allreduce(shards, between));
                    });
}

LocalLeg::Work LocalLeg::all_reduce(const Call& call, const ::c10d::AllreduceOptions& options,
                                    const BetweenHosts& between) {
  struct Part {
    at::Tensor whole;   // of the tensor
    at::Tensor padded;  // the same, with as many elements for each rank
    at::Tensor shard;   // this rank's
    int64_t begin;      // of the shard, in the tensor
    Work work = {};     // within the host
    Steps steps = {};   // between hosts
  };
  return run(call, [&] {
    const at::Tensor& tensor = call.results.front();
    const int64_t ranks = ranks_per_host();
    const int64_t place = places_[static_cast<size_t>(members_->rank)];
    const at::Tensor flat = flat_copy_unless_in_one_piece(tensor);
    auto reduce = with_timeout<::c10d::ReduceScatterOptions>(options);
    reduce.reduceOp = local_op(options.reduceOp);
    std::vector<Part> parts;
    int64_t begin = 0;
    for (at::Tensor& whole : chunks_of(flat, ranks)) {
      const int64_t share = (whole.numel() + ranks - 1) / ranks;
      Part part{whole, whole, at::empty({share}, whole.options()), begin + place * share};
      begin += whole.numel();
      if (whole.numel() % ranks != 0) {
        part.padded = at::zeros({share * ranks}, whole.options());
        part.padded.narrow(0, 0, whole.numel()).copy_(whole);
      }
      part.work = config_.local->_reduce_scatter_base(part.shard, part.padded, reduce);
      parts.push_back(std::move(part));
    }
    for (Part& part : parts) {
      if (!mutated(Mutation::kLegShardNotAwaited)) join(part.work);
      if (is_avg(options.reduceOp)) part.shard.div_(ranks);
      const int64_t size = std::min(part.shard.numel(), flat.numel() - part.begin);  // without padding
      if (!is_on_one_host() && size > 0) part.steps = between(part.shard.narrow(0, 0, size), part.begin);
    }
    // A step of all parts comes before the next one, so their exchanges overlap.
    for (size_t step = 0; step < kMostSteps; ++step) {
      for (const Part& part : parts) {
        if (step + 1 < part.steps.size()) part.steps[step]();
      }
    }
    const auto gather = with_timeout<::c10d::AllgatherOptions>(options);
    for (Part& part : parts) {
      if (!part.steps.empty()) part.steps.back()();
      part.work = config_.local->_allgather_base(part.padded, part.shard, gather);
    }
    for (Part& part : parts) {
      join(part.work);
      if (part.padded.numel() != part.whole.numel()) {
        part.whole.copy_(part.padded.narrow(0, 0, part.whole.numel()));
      }
    }
    put(tensor, flat);
  });
}

LocalLeg::Work LocalLeg::broadcast(const at::Tensor& tensor, const ::c10d::BroadcastOptions& options,
                                   const std::string& title) {
  return run({::c10d::OpType::BROADCAST, "broadcast", title, {tensor}, {tensor}}, [&] {
    const auto root = static_cast<size_t>(options.rootRank);
    const auto self = static_cast<size_t>(members_->rank);
    const at::Tensor flat = flat_copy_unless_in_one_piece(tensor);
    const std::vector<at::Tensor> chunks = chunks_of(as_bytes(flat), 1);
    std::vector<Work> works(chunks.size());
    auto between = with_timeout<::c10d::BroadcastOptions>(options);
    between.rootRank = config_.hosts[root];
    const bool receives = !is_on_one_host() && places_[self] == places_[root];
    for (size_t i = 0; receives && i < chunks.size(); ++i) {
      std::vector<at::Tensor> chunk{chunks[i]};
      works[i] = config_.across->broadcast(chunk, between);
    }
    auto within = with_timeout<::c10d::BroadcastOptions>(options);
    within.rootRank = places_[root];
    for (size_t i = 0; i < chunks.size(); ++i) {
      if (receives) join(works[i]);
      std::vector<at::Tensor> chunk{chunks[i]};
      works[i] = config_.local->broadcast(chunk, within);
    }
    join(works);
    put(tensor, flat);
  });
}

LocalLeg::Work LocalLeg::all_gather(const at::Tensor& output, const at::Tensor& input,
                                    const ::c10d::AllgatherOptions& options, const std::string& title) {
  return run({::c10d::OpType::_ALLGATHER_BASE, "all_gather", title, {input}, {output}}, [&] {
    at::Tensor mine = as_bytes(flat_copy_unless_in_one_piece(input));
    const at::Tensor all = flat_copy_unless_in_one_piece(output);
    const int64_t hosts = is_on_one_host() ? 1 : config_.across->getSize();
    at::Tensor column = mine;  // the inputs of this place
    if (!is_on_one_host()) {
      column = at::empty({hosts * mine.numel()}, mine.options());
      join(config_.across->_allgather_base(column, mine, with_timeout<::c10d::AllgatherOptions>(options)));
    }
    std::vector<Work> works;
    const at::Tensor rows = as_bytes(all).view({hosts, -1});
    for (int64_t host = 0; host < hosts; ++host) {
      at::Tensor row = rows.select(0, host);
      at::Tensor piece = column.narrow(0, host * mine.numel(), mine.numel());
      works.push_back(config_.local->_allgather_base(row, piece, with_timeout<::c10d::AllgatherOptions>(options)));
    }
    join(works);
    put(output, all);
  });
}

LocalLeg::Work LocalLeg::reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                        const ::c10d::ReduceScatterOptions& options, const std::string& title) {
  return reduce_scatter({::c10d::OpType::_REDUCE_SCATTER_BASE, "reduce_scatter", title, {input}, {output}},
                        options, [&](at::Tensor mine, at::Tensor column) {
                          auto between = with_timeout<::c10d::ReduceScatterOptions>(options);
                          between.reduceOp = options.reduceOp;
                          join(config_.across->_reduce_scatter_base(mine, column, between));
                        });
}

LocalLeg::Work LocalLeg::reduce_scatter(const Call& call, const ::c10d::ReduceScatterOptions& options,
                                        const ScatterBetweenHosts& between) {
  return run(call, [&] {
    const at::Tensor& input = call.inputs.front();
    const at::Tensor& output = call.results.front();
    const int64_t hosts = is_on_one_host() ? 1 : config_.across->getSize();
    const at::Tensor rows = flat_copy_unless_in_one_piece(input).view({hosts, -1});
    at::Tensor mine =
        in_one_piece(output) ? output.detach().view({-1}) : at::empty({output.numel()}, output.options());
    at::Tensor column = is_on_one_host() ? mine : at::empty({hosts * mine.numel()}, mine.options());
    auto within = with_timeout<::c10d::ReduceScatterOptions>(options);
    within.reduceOp = local_op(options.reduceOp);
    std::vector<Work> works;
    for (int64_t host = 0; host < hosts; ++host) {
      at::Tensor row = rows.select(0, host);
      at::Tensor piece = column.narrow(0, host * mine.numel(), mine.numel());
      works.push_back(config_.local->_reduce_scatter_base(piece, row, within));
    }
    join(works);
    if (is_avg(options.reduceOp)) column.div_(ranks_per_host());
    if (!is_on_one_host()) between(mine, column);
    put(output, mine);
  });
}

}  // namespace braid::adapter

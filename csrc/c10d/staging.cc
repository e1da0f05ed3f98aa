// SPDX-License-Identifier: Apache-2.0
#include "c10d/staging.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <new>
#include <utility>

#include "base/caught.h"
#include "c10d/callbacks.h"
#include "c10d/flags.h"
#include "c10d/mutations.h"
#include "c10d/tensors.h"

namespace braid::adapter {
namespace {

size_t aligned(size_t bytes) { return (bytes + kStagingAlignment - 1) / kStagingAlignment * kStagingAlignment; }

// Addresses that nobody uses, so that operations can be described before they have memory.
Bytes standing_bytes(size_t bytes) {
  static std::atomic<uintptr_t> next{uintptr_t{1} << 60};
  if (bytes == 0) return {};
  const uintptr_t begin = next.fetch_add((bytes + 2 * kStagingAlignment) / kStagingAlignment * kStagingAlignment);
  return {reinterpret_cast<std::byte*>(begin), bytes};  // NOLINT(performance-no-int-to-ptr)
}

}  // namespace

std::shared_ptr<Staging> Staging::make(c10::Device device) {
  if (!has_flags(device.type())) return std::make_shared<Staging>(device);
  const auto end = [](Staging* staging) {
    const Status queued = caught("queueing the end of an operation's copies",
                                 [staging] { run_callback([staging] { delete staging; }); });
    if (!queued.ok()) delete staging;
  };
  return {new Staging(device), end};
}

Staging::Copy& Staging::add(const at::Tensor& tensor) {
  copies_.push_back({tensor, standing_bytes(tensor.nbytes()), {}});
  return copies_.back();
}

void Staging::scale_inputs(const at::Tensor& factor) {
  has_factor_ = true;
  if (factor.is_cpu()) {
    factor_ = factor.clone();  // the caller may change it before it is used
    return;
  }
  Copy& copy = add(factor);
  copy.is_input = true;
  factor_is_staged_ = true;
}

ConstBytes Staging::read(const at::Tensor& tensor) {
  Copy& copy = add(tensor);
  copy.is_input = true;
  copy.scaled = has_factor_;
  return copy.standing;
}

Bytes Staging::write(const at::Tensor& tensor) {
  Copy& copy = add(tensor);
  copy.is_output = true;
  return copy.standing;
}

Bytes Staging::update(const at::Tensor& tensor) {
  const Bytes bytes = change(tensor);
  copies_.back().scaled = has_factor_;
  return bytes;
}

Bytes Staging::change(const at::Tensor& tensor) {
  Copy& copy = add(tensor);
  copy.is_input = true;
  copy.is_output = true;
  return copy.standing;
}

size_t Staging::bytes() const {
  size_t bytes = kStagingAlignment;  // for the words
  for (const Copy& copy : copies_) bytes += aligned(copy.standing.size());
  return bytes;
}

void Staging::hold(size_t counted, const at::Tensor& memory) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  size_t offset = kStagingAlignment;
  for (Copy& copy : copies_) {
    if (!memory.defined()) {
      copy.stand_in = pinned_like(copy.tensor);
      continue;
    }
    copy.stand_in = memory.narrow(0, static_cast<int64_t>(offset), static_cast<int64_t>(copy.standing.size()))
                        .view(copy.tensor.scalar_type())
                        .view(copy.tensor.sizes());
    offset += aligned(copy.standing.size());
  }
  words_memory_ = memory;
  if (factor_is_staged_) factor_ = copies_.front().stand_in;
  counted_ = counted;
  holds_ = true;
}

Bytes Staging::actual(ConstBytes standing) const {
  for (const Copy& copy : copies_) {
    if (!overlap(standing, copy.standing)) continue;
    return bytes_of(copy.stand_in)
        .subspan(static_cast<size_t>(standing.data() - copy.standing.data()), standing.size());
  }
  return {};
}

uint64_t Staging::bytes_down() const {
  uint64_t bytes = 0;
  for (const Copy& copy : copies_) bytes += copy.is_input ? copy.standing.size() : 0;
  return bytes;
}

uint64_t Staging::bytes_up() const {
  uint64_t bytes = 0;
  for (const Copy& copy : copies_) bytes += copy.is_output ? copy.standing.size() : 0;
  return bytes;
}

bool Staging::writes_input_of(const Staging& other) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const Copy& mine : copies_) {
    if (!mine.is_output || !mine.tensor.defined()) continue;
    for (const Copy& its : other.copies_) {
      if (its.is_input && overlap(extent_of(mine.tensor), extent_of(its.tensor))) return true;
    }
  }
  return false;
}

bool Staging::meets(const Reach& reach) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::any_of(copies_.begin(), copies_.end(), [&](const Copy& copy) {
    if (!copy.tensor.defined()) return false;
    const ConstBytes extent = extent_of(copy.tensor);
    return copy.is_output ? reach.is_touched(extent) : reach.is_written(extent);
  });
}

void Staging::start(std::shared_ptr<const CopyStreams> streams, const char* operation,
                    std::vector<std::shared_ptr<const Staging>> writers, bool gated) {
  const c10::Stream callers = callers_stream(device_, operation);
  streams_ = std::move(streams);
  writers_ = std::move(writers);
  ready_.emplace(device_.type());
  ready_->record(callers);
  if (gated) words_ = new (words_memory_.mutable_data_ptr()) Words{};
  static_cast<void>(enqueue_if_possible());
  if (gated) enqueue_gated_copies_up();
}

void Staging::cut(Operation& operation, size_t piece_bytes, std::function<void()> on_settled) {
  step_ = step_of(operation, piece_bytes);
  if (longest_block(operation) <= step_) {
    step_ = Feed::kAll;
    return;
  }
  for (const Bytes& block : operation.outputs) longest_output_ = std::max(longest_output_, block.size());
  for (const ConstBytes& block : operation.inputs) longest_input_ = std::max(longest_input_, block.size());
  for (Copy& copy : copies_) copy.blocks = blocks_in(copy.standing, operation);
  for (const Copy& output : copies_) {
    for (const Copy& input : copies_) {
      inputs_in_outputs_ |= output.is_output && input.is_input && &input != &output &&
                            overlap(extent_of(output.tensor), extent_of(input.tensor));
    }
  }
  feed_.emplace(std::move(on_settled));
  operation.feed = &*feed_;
}

// Each copy between host and device has contiguous memory on both sides, so it is one plain transfer. A tensor with
// gaps is packed first, on the device. The packed copy is allocated, used and freed on one stream.
void Staging::enqueue_copies_down() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::StreamGuard guard(streams_->down);
  enqueued_ = true;
  if (!mutated(Mutation::kNoEventBeforeCopyDown)) ready_->block(streams_->down);
  std::vector<std::pair<const Copy*, at::Tensor>> sources;
  for (const Copy& copy : copies_) {
    if (!copy.is_input) continue;
    at::Tensor source = copy.tensor;
    if (!in_one_piece(source)) {
      source = source.new_empty(source.sizes());
      source.copy_(copy.tensor);
    }
    sources.emplace_back(&copy, std::move(source));
  }
  // Without inputs the operation need not wait for the caller's stream; the copies up do.
  if (sources.empty() && !copies_.empty()) return;
  const size_t pieces = feed_ ? std::max<size_t>((longest_input_ + step_ - 1) / step_, 1) : 1;
  written_down_ = is_gated();
  for (size_t piece = 0; piece < pieces; ++piece) {
    const size_t end = piece + 1 == pieces ? Feed::kAll : (piece + 1) * step_;
    for (const auto& [copy, source] : sources) {
      copy_range(copy->stand_in, source, copy->blocks, piece * step_, end);
    }
    copied_.emplace_back(device_.type()).record(streams_->down);
    written_down_ = written_down_ && write_flag(streams_->down, &words_->down, static_cast<uint32_t>(piece + 1));
  }
  for (Copy& copy : copies_) {
    if (mutated(Mutation::kInputsNotKept) && copy.is_input && !copy.is_output) copy.tensor.reset();
  }
}

bool Staging::has_ended() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return ended_;
}

bool Staging::enqueue_if_possible() {
  if (enqueued_) return true;
  if (!holds_) return false;
  for (const auto& writer : writers_) {
    if (!writer->has_ended()) return false;
  }
  if (!writers_.empty()) {
    c10::Event written(device_.type());
    written.record(streams_->up);
    written.block(streams_->down);
    writers_.clear();
  }
  enqueue_copies_down();
  return true;
}

void Staging::drop_inputs() {
  std::vector<at::Tensor> released;  // without the lock: it may take the GIL
  const std::lock_guard<std::mutex> lock(mutex_);
  for (Copy& copy : copies_) {
    if (copy.is_input && !copy.is_output) released.push_back(std::move(copy.tensor));
  }
  if (is_gated()) run_callback([tensors = std::move(released)] {});
}

bool Staging::is_piece_down(size_t piece) const {
  if (!written_down_) return copied_[piece].query();
  return std::atomic_ref<uint32_t>(words_->down).load(std::memory_order_acquire) > piece;
}

bool Staging::take_in() {
  if (has_all_ || !enqueue_if_possible()) return false;
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const size_t before = taken_;
  const auto is_there = [&] {
    if (mutated(Mutation::kHostDoesNotAwait) || (taken_ > 0 && mutated(Mutation::kPieceNotAwaited))) return true;
    return is_piece_down(taken_);
  };
  while (taken_ < copied_.size() && is_there()) {
    const size_t begin = taken_ * step_;
    ++taken_;
    for (const Copy& copy : copies_) {
      if (!copy.scaled) continue;
      if (feed_) {
        scale_range(copy.stand_in, factor_, copy.blocks, begin, begin + step_);
      } else {
        scale_by(copy.stand_in, factor_);
      }
    }
  }
  has_all_ = taken_ == copied_.size();
  if (has_all_) drop_inputs();
  if (!has_all_ && taken_ == before) return false;
  if (feed_) feed_->arrive(has_all_ ? Feed::kAll : taken_ * step_);
  return true;
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
// The copies to the device of one operation, and its end.
#include <ATen/core/LegacyTypeDispatch.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <utility>

#include "base/caught.h"
#include "c10d/callbacks.h"
#include "c10d/flags.h"
#include "c10d/mutations.h"
#include "c10d/staging.h"
#include "c10d/tensors.h"

namespace braid::adapter {
namespace {

constexpr uint32_t kOpen = std::numeric_limits<int32_t>::max();  // all gates; CUDA compares with a sign

}  // namespace

// An operation that was never started cannot open its gates. Streams still read the flag, so it is never freed.
Staging::~Staging() {
  if (!is_gated() || !words_memory_.defined()) return;
  std::atomic_ref<uint32_t>(words_->gate).store(kOpen, std::memory_order_release);
  static_cast<void>(new std::vector<Copy>(std::move(copies_)));
  static_cast<void>(new at::Tensor(std::move(words_memory_)));
}

void Staging::begin_copies_up() {
  if (has_sent_) return;
  has_sent_ = true;
  ready_->block(streams_->up);
  if (inputs_in_outputs_ && !mutated(Mutation::kInputsOverwritten) && !copied_.empty())
    copied_.back().block(streams_->up);
}

// As for the copies down. A tensor with gaps is written at the end, at once.
void Staging::copy_up(const Copy& copy, size_t begin, size_t end) {
  if (in_one_piece(copy.tensor)) {
    copy_range(copy.tensor, copy.stand_in, copy.blocks, begin, end);
  } else if (end == Feed::kAll) {
    const at::Tensor packed = copy.tensor.new_empty(copy.tensor.sizes());
    packed.copy_(copy.stand_in, /*non_blocking=*/true);
    copy.tensor.copy_(packed);
  }
}

bool Staging::has_outputs() const {
  return std::any_of(copies_.begin(), copies_.end(), [](const Copy& copy) { return copy.is_output; });
}

bool Staging::can_be_gated() const {
  return has_outputs() && std::all_of(copies_.begin(), copies_.end(), [](const Copy& copy) {
           return !copy.is_output || in_one_piece(copy.tensor);
         });
}

void Staging::enqueue_gated_copies_up() {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::StreamGuard guard(streams_->up);
  const size_t pieces = feed_ ? std::max<size_t>((longest_output_ + step_ - 1) / step_, 1) : 1;
  begin_copies_up();
  for (size_t piece = 0; piece < pieces; ++piece) {
    if (!mutated(Mutation::kGateIgnored)) {
      const bool waits = wait_for_flag(streams_->up, &words_->gate, static_cast<uint32_t>(piece + 1));
      if (!waits && piece == 0) {
        written_down_ = false;
        words_ = nullptr;  // the courier enqueues the copies
        return;
      }
      TORCH_CHECK(waits, "braid: ", device_, " has refused to wait for a flag");
    }
    const size_t end = piece + 1 == pieces ? Feed::kAll : (piece + 1) * step_;
    for (const Copy& copy : copies_) {
      if (copy.is_output) copy_up(copy, piece * step_, end);
    }
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  done_.emplace(device_.type());
  done_->record(streams_->up);
  written_up_ = write_flag(streams_->up, &words_->up, 1);
  ended_ = true;
}

void Staging::open_gates(size_t pieces) {
  const size_t opened = mutated(Mutation::kGateOpenedEarly) ? pieces + 1 : pieces;
  std::atomic_ref<uint32_t>(words_->gate).store(static_cast<uint32_t>(opened), std::memory_order_release);
}

bool Staging::is_down() const {
  bool is_down = true;  // an event that fails will not come
  static_cast<void>(caught("asking for the end of a copy",
                           [&] { is_down = copied_.empty() || is_piece_down(copied_.size() - 1); }));
  return is_down;
}

void Staging::give_up() {
  if (!is_gated()) return;
  for (const Copy& copy : copies_) {
    if (!copy.is_output) continue;
    const Bytes all = bytes_of(copy.stand_in);
    if (copy.blocks.empty()) std::memset(all.data(), 0xff, all.size());
    for (const Block& block : copy.blocks) {
      const size_t begin = std::min(sent_, block.bytes);
      std::memset(all.data() + block.offset + begin, 0xff, block.bytes - begin);
    }
  }
  std::atomic_ref<uint32_t>(words_->gate).store(kOpen, std::memory_order_release);
}

bool Staging::send_up() {
  if (!feed_) return false;
  size_t settled = feed_->settled() / kStagingAlignment * kStagingAlignment;
  if (mutated(Mutation::kUnsettledSentUp) && settled > 0) settled += step_;
  if (feed_->settled() == Feed::kAll || settled < sent_ + step_) return false;
  if (is_gated()) {
    sent_ = settled / step_ * step_;
    open_gates(sent_ / step_);
    return true;
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::StreamGuard guard(streams_->up);
  begin_copies_up();
  for (const Copy& copy : copies_) {
    if (copy.is_output) copy_up(copy, sent_, settled);
  }
  sent_ = settled;
  const std::lock_guard<std::mutex> lock(mutex_);
  up_.emplace(device_.type());
  up_->record(streams_->up);
  return true;
}

void Staging::finish() {
  if (is_gated()) return open_gates(kOpen - 1);
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const c10::StreamGuard guard(streams_->up);
  begin_copies_up();
  for (Copy& copy : copies_) {
    if (!copy.is_output) continue;
    copy_up(copy, sent_, Feed::kAll);
    if (mutated(Mutation::kPinnedReleasedEarly)) copy.stand_in.reset();
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  done_.emplace(device_.type());
  done_->record(streams_->up);
  ended_ = true;
  if (mutated(Mutation::kOutputsReleasedEarly)) drop_outputs();
}

bool Staging::landed() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!copied_.empty() && !is_piece_down(copied_.size() - 1)) return false;
  if (written_up_) return std::atomic_ref<uint32_t>(words_->up).load(std::memory_order_acquire) == 1;
  if (up_ && !up_->query()) return false;
  return !done_ || done_->query();
}

void Staging::block(c10::Stream stream) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (done_) done_->block(stream);
}

void Staging::join() {
  std::vector<at::Tensor> released;  // without the lock: it may take the GIL
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!done_) return;  // the operation has failed
  if (!mutated(Mutation::kWaitDoesNotBlock))
    done_->block(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  for (Copy& copy : copies_) {
    if (copy.is_output) released.push_back(std::move(copy.tensor));
  }
}

void Staging::drop_outputs() {
  for (Copy& copy : copies_) copy.tensor.reset();
}

void Staging::release() {
  std::vector<at::Tensor> on_device;  // released without the lock: it may take the GIL
  std::vector<Copy> released;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    released.swap(copies_);
    ended_ = true;
    factor_.reset();
    words_memory_.reset();
    written_down_ = written_up_ = false;
  }
  for (Copy& copy : released) on_device.push_back(std::move(copy.tensor));
  if (is_gated()) run_callback([tensors = std::move(on_device)] {});
}

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
// One operation on tensors of an accelerator. It runs on stand-ins in pinned host memory: inputs are copied down
// for it, and outputs are copied up. A large operation is cut into pieces: it starts with its first piece, and settled
// pieces are copied up while it runs.
//
//   caller's thread   start(): event `ready` on the caller's stream; the stream `down` waits for it and copies; after
//                     each piece, an event
//   courier           take_in(): pieces are there, so the operation starts, or goes on
//                     send_up(): pieces are settled, so the stream `up` waits for `ready`, and copies
//                     the operation ends; finish(): copies the rest, then event `done`
//   caller's thread   join(): its current stream waits for `done`
//
// A gated operation has all its copies up enqueued by start(), each behind a wait for a flag. send_up() and finish()
// set the flag, and join() may be called at once. A thread that reads results from the device may hold the driver's
// lock until the gates are open. So the courier must not ask the device about this operation: streams write numbers
// for it. Nor may it release what the device knows: a callback thread does.
//
// A collective may read a tensor that an earlier one writes, and that nobody has waited for. Then the courier enqueues
// its copies down, after the earlier copies up.
//
// The functions are called in this order. Each call sees what the call before it has written, on whatever thread.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/feed.h"
#include "base/span.h"
#include "c10d/device.h"
#include "c10d/flat_works.h"
#include "c10d/pieces.h"

namespace braid::adapter {

// Memory of tensors in the host begins, and settled bytes end, at multiples of this, so at whole elements.
inline constexpr size_t kStagingAlignment = 64;

class Staging {
 public:
  // On a device with flags the last owner, whoever it is, leaves the end of this object to a callback thread.
  static std::shared_ptr<Staging> make(c10::Device device);
  explicit Staging(c10::Device device) : device_(with_index(device)) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  c10::Device device() const { return device_; }

  // read(), write(), update() and change() return addresses that only stand for memory: see actual().

  // Inputs that are read from now on are multiplied on the host, so that the bits are those of CPU tensors. The
  // factor has one element, on the CPU or on the same device.
  void scale_inputs(const at::Tensor& factor);
  // The memory in which the operation finds the values of an input.
  ConstBytes read(const at::Tensor& tensor);
  // The memory in which the operation leaves an output.
  Bytes write(const at::Tensor& tensor);
  // Both in one.
  Bytes update(const at::Tensor& tensor);
  // As update(), but the factor does not count.
  Bytes change(const at::Tensor& tensor);

  // The size of all memory that the operation needs in the host.
  size_t bytes() const;
  // Takes this memory, or allocates it. `counted`: the bytes to give back to the group's budget at the end.
  void hold(size_t counted, const at::Tensor& memory = {});
  bool holds_memory() const { return holds_; }
  size_t counted_bytes() const { return counted_; }
  // REQUIRES: hold().
  Bytes actual(ConstBytes standing) const;

  // Cuts the copies into pieces of about so many bytes, and feeds the operation if there are several. `on_settled`: see
  // Feed. Without this call the copies are not cut.
  void cut(Operation& operation, size_t piece_bytes, std::function<void()> on_settled);
  // What all inputs, and all outputs, take in host memory.
  uint64_t bytes_down() const;
  uint64_t bytes_up() const;

  // True if this operation will write what the other one reads, and no stream waits for it yet.
  bool writes_input_of(const Staging& other) const;
  // True if an operation that reaches so far must come after this one, and no stream waits for this one yet.
  bool meets(const Reach& reach) const;
  // True if start() may gate the operation: it has outputs, and none has gaps, for which memory would be allocated.
  bool can_be_gated() const;
  bool has_outputs() const;
  bool is_gated() const { return words_ != nullptr; }
  // Enqueues the copies down, or lets take_in() do so when there is memory and these earlier operations have ended.
  // `operation` is named if the stream is capturing a graph. `gated`: see above. REQUIRES then: can_be_gated(), it
  // holds memory, has_flags(), and earlier operations have enqueued their copies up.
  void start(std::shared_ptr<const CopyStreams> streams, const char* operation,
             std::vector<std::shared_ptr<const Staging>> writers, bool gated);
  // Takes in the pieces that are on the host: multiplies them by the factor, and feeds the operation. After the last
  // one, releases the inputs. True if anything moved.
  bool take_in();
  // True when the first piece, or every piece, of all inputs has been taken in.
  bool has_first() const { return has_all_ || taken_ > 0; }
  bool has_all() const { return has_all_; }
  // Enqueues copies up of settled pieces. True if there were any.
  bool send_up();
  // Enqueues all other copies up. REQUIRES: has_all(), and the operation has succeeded.
  void finish();
  // True when no copy down is under way.
  bool is_down() const;
  // After a failure: fills what is not settled with ones, which are NaN for floats, and opens all gates. REQUIRES:
  // is_down(), because these copies would write over it.
  void give_up();
  // True when no copy is under way, so that all memory may be released.
  bool landed() const;
  // True if the copies up are enqueued, or never will be.
  bool has_ended() const;
  // The stream waits for the copies up. REQUIRES: has_ended().
  void block(c10::Stream stream) const;
  // The calling thread's current stream waits for the copies up. Releases the outputs.
  void join();
  // Releases everything but events; the operation may have failed. REQUIRES: landed().
  void release();
  // The stream of the copies up. REQUIRES: start().
  c10::Stream up() const { return streams_->up; }

 private:
  struct Copy {
    at::Tensor tensor;    // on the device; undefined once released
    Bytes standing;       // the address that stands for the memory
    at::Tensor stand_in;  // pinned; undefined until hold()
    bool is_input = false;
    bool is_output = false;
    bool scaled = false;
    std::vector<Block> blocks = {};  // empty: copied with the first piece
  };
  Copy& add(const at::Tensor& tensor);
  void drop_inputs();
  bool is_piece_down(size_t piece) const;
  bool enqueue_if_possible();
  void enqueue_copies_down();
  void enqueue_gated_copies_up();
  void open_gates(size_t pieces);
  void begin_copies_up();
  void copy_up(const Copy& copy, size_t begin, size_t end);
  void drop_outputs();

  const c10::Device device_;
  // Of a gated operation, at the start of its pinned memory.
  struct Words {
    uint32_t gate;  // how many pieces may be copied up
    uint32_t down;  // how many pieces are down; written by a stream
    uint32_t up;    // 1 when all copies are over; written by a stream
  };
  static_assert(sizeof(Words) <= kStagingAlignment);
  at::Tensor words_memory_;
  Words* words_ = nullptr;
  bool written_down_ = false;  // the streams write words_->down and words_->up
  bool written_up_ = false;
  std::shared_ptr<const CopyStreams> streams_;
  std::vector<std::shared_ptr<const Staging>> writers_;  // to wait for before the copies down
  std::vector<Copy> copies_;
  at::Tensor factor_;  // on the CPU, of one element
  bool has_factor_ = false;
  bool factor_is_staged_ = false;  // then it is the first copy
  bool holds_ = false;
  size_t counted_ = 0;
  bool enqueued_ = false;     // the copies down
  std::optional<Feed> feed_;  // if the operation is fed
  size_t step_ = Feed::kAll;  // bytes of each block in a piece
  size_t longest_input_ = 0;  // the longest input block
  size_t longest_output_ = 0;
  bool inputs_in_outputs_ = false;  // an output lies where another tensor is read
  std::optional<c10::Event> ready_;
  std::vector<c10::Event> copied_;  // after the copies down of each piece
  size_t taken_ = 0;                // pieces
  bool has_all_ = false;
  size_t sent_ = 0;           // bytes of each block
  bool has_sent_ = false;     // copies up were enqueued
  mutable std::mutex mutex_;  // for the next, and the tensors of outputs
  bool ended_ = false;
  std::optional<c10::Event> up_;    // after the last copies up so far
  std::optional<c10::Event> done_;  // after all copies up
};

}  // namespace braid::adapter

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <vector>

#include "transport/channel.h"
#include "transport/shm/link.h"
#include "transport/shm/ring.h"

namespace braid::shm {

// The channel to a peer on this host: a ring per direction in shared memory (layout.h).
class ShmChannel final : public Channel {
 public:
  ShmChannel(const Link& link, FrameSink& sink);
  ~ShmChannel() override { close(); }

  const ChannelTraits& traits() const override { return link_.traits; }
  void post(const Frame& frame, ConstBytes payload, Request* request) override;
  bool poll() override;
  Status pull(uint64_t address, Bytes into) override;
  std::optional<uint64_t> peer_stream() override;
  bool heard() override;
  void close() override;

 private:
  struct Queued {
    Frame frame;
    ConstBytes payload;
    Request* request = nullptr;
    std::vector<std::byte> copy;  // `payload` refers to this if there is no request
  };

  bool write(const Frame& frame, ConstBytes payload, size_t reserve);
  void write_last(const Queued& words);
  bool flush();
  bool drain();
  void deliver(const Frame& frame);
  void give_up(Status why);

  const Link& link_;
  FrameSink& sink_;
  RingReader reader_;
  RingWriter writer_;
  std::deque<Queued> queue_;
  uint32_t pulse_ = 0;  // the peer's pulse at the last look
  Status broken_;       // found while posting, to be reported by the next poll()
  bool lost_ = false;
  bool closed_ = false;
};

}  // namespace braid::shm

// SPDX-License-Identifier: Apache-2.0
#include "transport/loopback/loopback.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>

namespace braid {

class LoopbackChannel final : public Channel {
 public:
  LoopbackChannel(LoopbackHub& hub, Node rank, Node peer, FrameSink& sink)
      : hub_(hub), out_(hub.queue(rank, peer)), in_(hub.queue(peer, rank)), peer_(peer), sink_(sink) {}

  ~LoopbackChannel() override {  // the delay line may still deliver, and must not ring after this
    const std::lock_guard lock(in_.mutex);
    in_.reader_bell = nullptr;
  }

  const ChannelTraits& traits() const override { return hub_.traits_; }

  void post(const Frame& frame, ConstBytes payload, Request* request) override {
    hub_.line_.send(
        [&out = out_, packet = LoopbackHub::Packet{frame, {payload.begin(), payload.end()}}]() mutable {
          const std::lock_guard lock(out.mutex);
          out.packets.push_back(std::move(packet));
          if (out.reader_bell != nullptr) ring(*out.reader_bell);
        });
    if (request != nullptr) sink_.written(request);
  }

  bool poll() override {
    bool moved = false;
    while (!closed_) {
      std::optional<LoopbackHub::Packet> packet = take();
      if (!packet) break;
      moved = true;
      Result<Bytes> landing = sink_.landing(peer_, packet->frame);
      if (!landing.ok()) {
        sink_.lost(peer_, landing.status());
        break;
      }
      if (!packet->payload.empty()) {
        std::memcpy(landing.value().data(), packet->payload.data(), packet->payload.size());
      }
      sink_.arrived(peer_, packet->frame);
    }
    if (!closed_ && !moved && hung_up() && !std::exchange(reported_, true)) {
      sink_.lost(peer_, {Code::kPeerLost, "rank " + std::to_string(peer_) + " died", peer_});
      return true;
    }
    return moved;
  }

  Status pull(uint64_t address, Bytes into) override {
    std::memcpy(into.data(), reinterpret_cast<const void*>(address), into.size());
    return {};
  }

  void close() override { closed_ = true; }

 private:
  std::optional<LoopbackHub::Packet> take() {
    const std::lock_guard lock(in_.mutex);
    if (in_.packets.empty()) return std::nullopt;
    LoopbackHub::Packet packet = std::move(in_.packets.front());
    in_.packets.pop_front();
    return packet;
  }

  bool hung_up() {
    const std::lock_guard lock(in_.mutex);
    return in_.closed && in_.packets.empty();
  }

  LoopbackHub& hub_;
  LoopbackHub::Queue& out_;
  LoopbackHub::Queue& in_;
  const Node peer_;
  FrameSink& sink_;
  bool closed_ = false;
  bool reported_ = false;
};

LoopbackHub::LoopbackHub(int ranks, LoopbackOptions options)
    : ranks_(ranks),
      traits_{.eager_bytes = options.eager_bytes,
              .piece_bytes = options.piece_bytes,
              .peer_reads = options.read_peers,
              .reads_peer = options.read_peers,
              .has_nic = options.has_nic},
      line_(options.delay) {
  for (int i = 0; i < ranks * ranks; ++i) queues_.push_back(std::make_unique<Queue>());
}

std::unique_ptr<Channel> LoopbackHub::channel(Node rank, Node peer, FrameSink& sink, DoorbellWord& bell) {
  Queue& in = queue(peer, rank);
  const std::lock_guard lock(in.mutex);
  in.reader_bell = &bell;
  return std::make_unique<LoopbackChannel>(*this, rank, peer, sink);
}

void LoopbackHub::kill(Node rank) {
  for (Node peer = 0; peer < ranks_; ++peer) {
    line_.send([&out = queue(rank, peer)] {
      const std::lock_guard lock(out.mutex);
      out.closed = true;
      if (out.reader_bell != nullptr) ring(*out.reader_bell);
    });
  }
}

}  // namespace braid

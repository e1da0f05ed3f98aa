// SPDX-License-Identifier: Apache-2.0
// Shared memory as a Wire.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport/shm/shm.h"
#include "transport/wire.h"

namespace braid {

// Thread safety: as Wire. `bell` and `watch` outlive the wire; all channels are closed before it is destroyed.
class ShmWire final : public Wire {
 public:
  ShmWire(Node rank, int ranks, FrameSink& sink, ShmDoorbell& bell, DeathWatch& watch, const ShmOptions& options);

  std::string_view name() const override { return "shm"; }
  Result<std::string> offer() override;
  Status join(const std::string& group, const std::string& secret, const std::vector<WirePeer>& peers) override;
  std::string excludes(const WirePeer& peer) const override;
  bool must_try() const override { return true; }
  Reach reach(Node peer, const std::string& offer) override;
  Result<std::unique_ptr<Channel>> connect(Node peer, const std::string& offer, char theirs) override;
  std::string describe(Node peer, const std::string& offer) const override;
  void settle() override;
  std::atomic<uint64_t>* stream_word() override;
  SharedBoard share_board(const std::vector<std::string>& reaches, bool crowded) override;

 private:
  const Node rank_;
  const int ranks_;
  FrameSink& sink_;
  ShmDoorbell& bell_;
  DeathWatch& watch_;
  const ShmOptions options_;
  std::unique_ptr<ShmGroup> group_;  // null before offer()
  std::vector<Node> readers_;        // connected peers that read this process's memory
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// TCP as a Wire.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/tcp/tcp.h"
#include "transport/wire.h"

namespace braid {

// Thread safety: as Wire.
class TcpWire final : public Wire {
 public:
  // Returns the listener of this process; the first call opens it.
  using Listening = std::function<Result<std::shared_ptr<TcpEndpoint>>()>;

  TcpWire(Node rank, int ranks, FrameSink& sink, Listening listening)
      : rank_(rank), ranks_(ranks), sink_(sink), listening_(std::move(listening)) {}

  std::string_view name() const override { return "tcp"; }
  Result<std::string> offer() override;
  Status join(const std::string& group, const std::string& secret, const std::vector<WirePeer>& peers) override;
  Result<std::unique_ptr<Channel>> connect(Node peer, const std::string& offer, char theirs) override;
  std::string describe(Node peer, const std::string& offer) const override;
  std::string nic_of(const std::string& offer) const override;
  NicRates take_rates() override;
  void leave() override;
  void wait_for_last_words(Deadline deadline) override;

 private:
  const Node rank_;
  const int ranks_;
  FrameSink& sink_;
  const Listening listening_;
  std::shared_ptr<TcpGroup> group_;  // null before join()
  std::string place_;                // where this process listens; set by join()
};

}  // namespace braid

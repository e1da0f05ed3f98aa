// SPDX-License-Identifier: Apache-2.0
// A wire to a peer that the test plays: what the mailbox posts is kept, and nothing comes by itself.
#pragma once

#include <algorithm>
#include <vector>

#include "transport/mailbox.h"

namespace braid::testing {

class RecordingChannel final : public Channel {
 public:
  explicit RecordingChannel(const ChannelTraits& traits) : traits_(traits) {}

  const ChannelTraits& traits() const override { return traits_; }
  void post(const Frame& frame, ConstBytes, Request*) override { posted.push_back(frame); }
  bool poll() override { return false; }
  Status pull(uint64_t, Bytes) override { return {}; }
  void close() override {}

  size_t count(FrameKind kind) const {
    return static_cast<size_t>(
        std::count_if(posted.begin(), posted.end(), [&](const Frame& frame) { return frame.kind == kind; }));
  }

  std::vector<Frame> posted;

 private:
  const ChannelTraits traits_;
};

}  // namespace braid::testing

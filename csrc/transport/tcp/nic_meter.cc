// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/nic_meter.h"

#include <utility>

#include "transport/tcp/membership.h"

namespace braid {
namespace {

constexpr milliseconds kInterval{5};
// After this many looks at which nothing had moved, the looks end.
constexpr int kQuietLooks = 10;
// Fewer bytes are not worth a look: barriers, for example, and other small messages.
constexpr uint64_t kWorthALook = 64 * 1024;
// With fewer bytes under way, a connection waits for its peer or for us, and not for the NIC.
constexpr size_t kBacklog = 16 * 1024;
constexpr uint64_t kTrickle = 512;

}  // namespace

void NicMeter::start() {
  if (moved_bytes_ < kWorthALook) return;
  running_ = true;
  quiet_looks_ = 0;
  read_bytes_ = 0;
  more_out_ = more_in_ = false;
  looked_at_ = Clock::now();
  look_later();
}

void NicMeter::look_later() {
  group_.reactor.at(looked_at_ + kInterval, [group = group_.shared_from_this(), this] {
    group->guarded("looking at what the NIC passes", [this] { look(); });
  });
}

void NicMeter::look() {
  const auto now = Clock::now();
  Passage out;
  for (Node peer = 0; peer < group_.ranks; ++peer) out += group_.link(peer).passage();
  const bool more_out = out.held_bytes >= kBacklog;
  const bool more_in = group_.sink().awaits(kBacklog);
  up_.interval(now - looked_at_, out.passed_bytes, more_out_ && more_out);
  down_.interval(now - looked_at_, read_bytes_, more_in_ && more_in && read_bytes_ >= kTrickle);

  quiet_looks_ = moved_bytes_ + out.passed_bytes == 0 ? quiet_looks_ + 1 : 0;
  looked_at_ = now;
  more_out_ = more_out;
  more_in_ = more_in;
  moved_bytes_ = read_bytes_ = 0;
  if (quiet_looks_ < kQuietLooks) {
    look_later();
  } else {
    running_ = false;
    up_.pause();
    down_.pause();
  }
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "links/control_channel.h"

#include <span>

#include "base/limits.h"

namespace braid {

Status ControlChannel::end_of_patience(Node on) {
  const auto now = Clock::now();
  if (now >= deadline_) {
    const std::string who = on == kAnyNode ? "the ranks" : "rank " + std::to_string(on);
    return {Code::kTimeout, who + " did not finish " + what_ + " in time", on};
  }
  if (!give_up_ || now < look_up_at_) return {};
  look_up_at_ = now + kLookUpEvery;
  return give_up_() ? Status(Code::kAborted, "a rank was interrupted while ranks were " + what_) : Status();
}

Result<std::string> ControlChannel::tell(Node rank, int ranks, std::string text) {
  next_step();
  uint64_t size = text.size();
  for (Node node = 1; node < ranks; ++node) {
    if (rank != 0 && rank != node) continue;
    const auto pass = [&](uint64_t number, Bytes bytes) {
      return rank == 0 ? send(node, number, bytes) : recv(0, number, bytes);
    };
    if (Status bad = pass(0, std::as_writable_bytes(std::span(&size, 1))); !bad.ok()) return bad;
    if (size > kMostToldBytes) {
      const Status bad(Code::kMismatch, too_large("what rank 0 says in " + what_, size, kMostToldBytes), 0);
      mailbox_.fail(bad);
      return bad;
    }
    text.resize(size);
    if (size == 0) continue;
    if (Status bad = pass(1, std::as_writable_bytes(std::span(text))); !bad.ok()) return bad;
  }
  return text;
}

Result<std::string> ControlChannel::consult(Node rank, int ranks, ConstBytes word,
                                            const std::function<std::string(const Words&)>& decide) {
  next_step();
  if (rank != 0) {
    if (Status bad = send(0, 0, word); !bad.ok()) return bad;
    return tell(rank, ranks, "");
  }
  Words words(static_cast<size_t>(ranks), std::vector<std::byte>(word.begin(), word.end()));
  for (Node node = 1; node < ranks; ++node) {
    if (Status bad = recv(node, 0, words[static_cast<size_t>(node)]); !bad.ok()) return bad;
  }
  return tell(rank, ranks, decide(words));
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "communicator/parley.h"

#include <span>

namespace braid {

std::string Parley::late_text(Node on) const {
  const std::string who = on == kAnyNode ? "the ranks" : "rank " + std::to_string(on);
  return who + " did not finish " + what_ + " in time";
}

Result<std::string> Parley::tell(Node rank, int ranks, std::string text) {
  next_step();
  uint64_t size = text.size();
  for (Node node = 1; node < ranks; ++node) {
    if (rank != 0 && rank != node) continue;
    const auto pass = [&](uint64_t number, Bytes bytes) {
      return rank == 0 ? send(node, number, bytes) : recv(0, number, bytes);
    };
    if (Status bad = pass(0, std::as_writable_bytes(std::span(&size, 1))); !bad.ok()) return bad;
    text.resize(size);
    if (size == 0) continue;
    if (Status bad = pass(1, std::as_writable_bytes(std::span(text))); !bad.ok()) return bad;
  }
  return text;
}

Result<std::string> Parley::consult(Node rank, int ranks, ConstBytes word,
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

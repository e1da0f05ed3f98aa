// SPDX-License-Identifier: Apache-2.0
// The boards of ranks that are threads of this process, or that one thread plays. They are in private memory.
#pragma once

#include <unistd.h>

#include <deque>
#include <memory>
#include <vector>

#include "transport/shm/board.h"
#include "transport/shm/ring.h"

namespace braid::shm {

class LocalBoards {
 public:
  LocalBoards(int ranks, size_t bounce_bytes)
      : bells_(static_cast<size_t>(ranks)), controls_(static_cast<size_t>(ranks)) {
    std::vector<BoardPeer> peers;
    for (Node node = 0; node < ranks; ++node) {
      memory_.emplace_back(board_bytes(ranks, bounce_bytes) / sizeof(Page) + 1);
      Link& link = links_.emplace_back();
      link.peer = node;
      link.pid = ::getpid();
      link.in.control = &controls_[static_cast<size_t>(node)];
      link.peer_bell = &bells_[static_cast<size_t>(node)];
      peers.push_back({memory_.back().front().bytes, &link});
    }
    for (const BoardPeer& own : peers) {
      boards_.push_back(std::make_unique<Board>(own.link->peer, own.board, peers, bounce_bytes));
    }
  }

  Board& operator[](Node node) { return *boards_[static_cast<size_t>(node)]; }
  std::byte* memory(Node node) { return memory_[static_cast<size_t>(node)].front().bytes; }
  DoorbellWord& bell(Node node) { return bells_[static_cast<size_t>(node)]; }
  // How all other ranks see this rank from now on.
  void hang_up(Node node) { RingWriter(links_[static_cast<size_t>(node)].in).hang_up(); }
  void die(Node node) { links_[static_cast<size_t>(node)].died = true; }

 private:
  struct Page {
    alignas(kPageBytes) std::byte bytes[kPageBytes];
  };
  std::deque<std::vector<Page>> memory_;
  std::vector<DoorbellWord> bells_;
  std::vector<RingControl> controls_;
  std::deque<Link> links_;
  std::vector<std::unique_ptr<Board>> boards_;
};

}  // namespace braid::shm

// SPDX-License-Identifier: Apache-2.0
#include "executor/board_plan.h"

#include <algorithm>
#include <map>
#include <vector>

#include "transport/shm/board_layout.h"

namespace braid {
namespace {

// Schedules with more rounds run one segment at a time.
constexpr size_t kMostOverlap = 3;
// Target size of a chunk. It is small enough that a reader begins while the rest is being copied. It is large
// enough that ranks seldom wait for each other (docs/intra_host.md).
constexpr size_t kLargestChunk = 256 * 1024;
// Reading another process's memory costs a system call and a lookup of each page. But it needs only one copy and
// no turns, so it pays from this size on.
constexpr size_t kLendFrom = size_t{2} << 20;

struct Traffic {
  size_t messages = 0;
  size_t refs = 0;             // different refs
  int64_t bounced_chunks = 0;  // chunks of all different refs
  size_t messages_to_one = 0;  // the most messages to one peer
};

Traffic traffic_of(const Round& round) {
  Traffic traffic;
  std::vector<Ref> bounced;
  std::map<Node, size_t> messages;
  for (const Step& step : round) {
    if (step.op != Op::kSend) continue;
    ++traffic.messages;
    traffic.messages_to_one = std::max(traffic.messages_to_one, ++messages[step.peer]);
    if (std::find(bounced.begin(), bounced.end(), step.target) != bounced.end()) continue;
    bounced.push_back(step.target);
    ++traffic.refs;
    traffic.bounced_chunks += step.target.count;
  }
  return traffic;
}

// The round of each message that a node sends to the peer, or takes from it, in the order of the messages.
std::vector<size_t> rounds_of_messages(const Program& program, Node peer, bool sends) {
  std::vector<size_t> rounds;
  for (size_t round = 0; round < program.size(); ++round) {
    for (const Step& step : program[round]) {
      const bool whole = (step.op == Op::kSend && sends) || (step.op == Op::kRecv && !sends);
      if (whole && step.peer == peer) rounds.push_back(round);
      for (const Source& source : step.sources) {
        if (!sends && source.from == peer) rounds.push_back(round);
      }
    }
  }
  return rounds;
}

// True if every message is taken in the round in which it is sent. Otherwise sender and receiver could see the
// messages of overlapping segments in different orders.
bool keeps_step(const Schedule& schedule) {
  const int nodes = static_cast<int>(schedule.programs.size());
  for (Node from = 0; from < nodes; ++from) {
    for (Node to = 0; to < nodes; ++to) {
      const auto sent = rounds_of_messages(schedule.programs[static_cast<size_t>(from)], to, true);
      if (sent != rounds_of_messages(schedule.programs[static_cast<size_t>(to)], from, false)) return false;
    }
  }
  return true;
}

bool overlap(const Ref& a, const Ref& b) { return a.first < b.first + b.count && b.first < a.first + a.count; }

// True if `step` may write to the memory of `sent`. Input and output count as the same memory if they may be the
// same.
bool overwrites(const Schedule& schedule, const Step& step, const Ref& sent) {
  if (step.op == Op::kSend || !overlap(step.target, sent)) return false;
  if (step.target.buffer == sent.buffer) return true;
  const bool may_be_one = is_vector(schedule.collective.kind) && sent.buffer == Buffer::kInput;
  const bool leaves_it = step.op == Op::kCopy && step.sources[0].ref == sent;  // a copy onto itself
  return may_be_one && !leaves_it;
}

// True if messages may be read at any time until the end: no step reduces or uses scratch, and no step writes to
// memory that was sent.
bool keeps_what_it_sends(const Schedule& schedule) {
  for (const Program& program : schedule.programs) {
    std::vector<Ref> sent;
    for (const Round& round : program) {
      for (const Step& step : round) {
        if (step.op == Op::kReduce || step.target.buffer == Buffer::kScratch) return false;
        if (step.op == Op::kSend) sent.push_back(step.target);
      }
      for (const Step& step : round) {
        for (const Ref& ref : sent) {
          if (overwrites(schedule, step, ref)) return false;
        }
      }
    }
  }
  return true;
}

// True if lending is faster than the bounce buffer: each message of a round has one reader. With several readers
// the bounce buffer is faster: all senders copy at the same time, once, and readers find the message in their
// caches. A single sender of one message gains nothing if it has a core of its own. It copies the next chunk while
// the readers read the last one.
bool gains_by_lending(const Schedule& schedule, bool crowded) {
  int senders = 0;
  bool shares = false;
  size_t refs = 0;
  for (const Program& program : schedule.programs) {
    bool sends = false;
    for (const Round& round : program) {
      const Traffic traffic = traffic_of(round);
      sends |= traffic.messages > 0;
      shares |= traffic.messages > traffic.refs;
      refs = std::max(refs, traffic.refs);
    }
    senders += sends ? 1 : 0;
  }
  return senders == 1 ? crowded || refs > 1 : !shares;
}

}  // namespace

BoardPlan plan_for_boards(const VerifiedSchedule& verified, const Host& host) {
  const Schedule& schedule = verified.schedule();
  Traffic most;
  size_t rounds = 1;
  BoardPlan plan;
  for (const Program& program : schedule.programs) {
    rounds = std::max(rounds, program.size());
    plan.uses_scratch |= uses_scratch(program);
    for (const Round& round : program) {
      for (const Step& step : round) plan.moves_only &= step.op != Op::kReduce;
      const Traffic traffic = traffic_of(round);
      most.bounced_chunks = std::max(most.bounced_chunks, traffic.bounced_chunks);
      most.messages_to_one = std::max(most.messages_to_one, traffic.messages_to_one);
    }
  }
  const bool overlaps = rounds <= kMostOverlap && keeps_step(schedule);
  plan.stride = overlaps ? 1 : static_cast<int64_t>(rounds);
  const size_t at_once = overlaps ? rounds : 1;
  const size_t chunks = at_once * static_cast<size_t>(std::max<int64_t>(most.bounced_chunks, 1));
  // Rounding can make a chunk one cache line larger than its target size. Each chunk begins at a cache line.
  const size_t room = host.bounce_bytes / 2 / chunks;
  if (room < 64 * 4) return plan;
  plan.chunk_bytes = std::min(kLargestChunk, (room - 128) / 64 * 64);
  plan.possible = most.messages_to_one * at_once <= shm::kNotices / 2;
  if (host.readable && keeps_what_it_sends(schedule) && gains_by_lending(schedule, host.crowded))
    plan.lend_from = kLendFrom;
  return plan;
}

}  // namespace braid

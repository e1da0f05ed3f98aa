// SPDX-License-Identifier: Apache-2.0
// The server's end of a lane (call.h): receives the worker's calls for one shard, one after the other, and sends the
// answers. A lane whose call waits does not hold up the others of its pair.
//
// Thread safety: one thread polls and destroys it.
#pragma once

#include <memory>
#include <string>

#include "parameters/coded_values.h"
#include "parameters/pair.h"
#include "parameters/server.h"

namespace braid {

// What the lanes of a pair have in common.
struct SessionState {
  Server& server;
  const int worker;
  const std::string name;  // of the worker, in messages
  const std::unique_ptr<Pair> pair;
  bool has_joined = false;
};

class CallLane {
 public:
  CallLane(SessionState& session, size_t index);
  ~CallLane();
  CallLane(const CallLane&) = delete;
  CallLane& operator=(const CallLane&) = delete;

  // Moves what can move. True if anything moved.
  bool poll();
  // The pair must end, because of why(), or because the worker has left.
  bool is_over() const { return state_ == State::kOver; }
  const Status& why() const { return why_; }
  // No call has come that is not answered.
  bool is_idle() const { return state_ == State::kCall && !request_.done(); }
  // The worker leaves. It is answered when all other lanes are idle.
  bool is_leaving() const { return state_ == State::kLeaving; }
  void let_leave();
  bool has_left() const { return leaves_; }
  // The pair ends: the server forgets the call.
  void cancel();
  void give_buffer_back();

 private:
  enum class State { kCall, kTable, kBuffer, kBody, kServing, kLeaving, kAnswering, kOver };

  bool step();
  void begin_call();
  void take_call();
  void find_memory();
  Bytes message() const;
  Status decode_update();
  void answer_done();
  void serve();
  void join();
  void answer(const Status& status, ConstBytes body);
  void end(const Status& why);
  uint64_t number() const { return lane_number(index_, count_); }

  SessionState& session_;
  Server& server_;
  const size_t index_;
  State state_ = State::kCall;
  Status why_;
  bool leaves_ = false;
  uint64_t count_ = 0;  // of calls
  Request request_;
  Request body_request_;
  Table table_;
  std::string text_;  // settings of the worker, or the reason of a failure
  Floats map_text_;   // for kMap
  CodedValues values_;
  size_t counted_bytes_ = 0;  // of values_, as the server knows
  std::unique_ptr<Job> job_;
};

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// The server's end of a pair: receives the calls of one worker, one after the other, and sends the answers.
//
// Thread safety: one thread polls and destroys it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parameters/coded_values.h"
#include "parameters/pair.h"
#include "parameters/server.h"

namespace braid {

class Session {
 public:
  Session(Server& server, int worker, std::unique_ptr<Pair> pair);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int worker() const { return worker_; }
  // Moves what can move. True if anything moved.
  bool poll();
  // The worker has left or is lost. The server does not count it any more.
  bool is_over() const { return state_ == State::kOver; }

 private:
  enum class State { kCall, kTable, kBuffer, kBody, kServing, kAnswering, kOver };

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

  Server& server_;
  const int worker_;
  const std::unique_ptr<Pair> pair_;
  State state_ = State::kCall;
  bool has_joined_ = false;
  bool leaves_ = false;
  uint64_t number_ = 0;
  Request request_;
  Request body_request_;
  Table table_;
  std::string text_;  // settings of the worker, or the reason of a failure
  Floats snapshot_;   // for kSnapshot and kRestore, which are larger than a buffer
  CodedValues values_;
  size_t counted_bytes_ = 0;  // of values_, as the server knows
  std::unique_ptr<Job> job_;
};

}  // namespace braid

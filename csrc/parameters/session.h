// SPDX-License-Identifier: Apache-2.0
// The server's end of a pair: its lanes, until the worker has left or is lost.
//
// Thread safety: one thread polls and destroys it.
#pragma once

#include <deque>
#include <memory>
#include <string>

#include "parameters/lane.h"

namespace braid {

class Session {
 public:
  // `name`: of the worker, in messages.
  Session(Server& server, int worker, std::string name, std::unique_ptr<Pair> pair);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  int worker() const { return state_.worker; }
  // Moves what can move. True if anything moved.
  bool poll();
  // The worker has left or is lost. The server does not count it any more.
  bool is_over() const { return is_over_; }
  // Ends the pair, and tells the worker why.
  void end(const Status& why);

 private:
  bool let_leave();

  SessionState state_;
  std::deque<CallLane> lanes_;
  bool is_over_ = false;
};

}  // namespace braid

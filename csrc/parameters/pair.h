// SPDX-License-Identifier: Apache-2.0
// A worker and a server: a group of two of their own, so that the death of one ends this pair and nothing else.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/store.h"
#include "engine/engine_impl.h"
#include "rendezvous/rendezvous.h"
#include "transport/mailbox.h"
#include "transport/vigil.h"

namespace braid {

class Pair {
 public:
  enum End : Node { kWorker = 0, kServer = 1 };

  // Blocks until both ends have come, for options.timeout at most. `name` is unique to the pair. `peer` names the other
  // end in errors.
  static Result<std::unique_ptr<Pair>> form(std::shared_ptr<EngineImpl> engine, Store& store, End end,
                                            const std::string& name, const std::string& peer,
                                            const Options& options);
  ~Pair();
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;

  // The parts of a call, in the order in which they are sent. kNever is never sent.
  enum class Part : uint64_t { kCall = 1, kTable, kBody, kAnswer, kAnswerBody, kNever };
  // `number`: of the call, from 0. As Mailbox::send() and recv().
  void send(Part part, uint64_t number, ConstBytes bytes, Request* request);
  void recv(Part part, uint64_t number, Bytes bytes, Request* request);

  bool poll() { return mailbox_.poll(); }
  // Ends the pair: all requests finish with this error, and the other end is told.
  void fail(const Status& why) { mailbox_.fail(why); }
  // Leaves in good order: all requests finish.
  void close() { mailbox_.close(); }
  // The other end had no answer from this process for a while, took it for lost, and goes on without it.
  bool was_given_up() const {
    const Status why = mailbox_.failure();
    return why.code() == Code::kPeerLost && why.rank() == end_;
  }
  // The host and process of the other end: "node7 (pid 4711)".
  const std::string& place() const { return wires_.places[static_cast<size_t>(1 - end_)]; }
  // The other end as errors name it from now on.
  void set_peer(const std::string& name) { mailbox_.set_name(1 - end_, name); }
  const std::string& wire() const { return wires_.descriptions[static_cast<size_t>(1 - end_)]; }

 private:
  Pair(std::shared_ptr<EngineImpl> engine, End end, const Options& options);

  const std::shared_ptr<EngineImpl> engine_;
  const End end_;
  Wires wires_;
  Mailbox mailbox_;  // after the wires: closed and destroyed before them
  const std::shared_ptr<Vigil> vigil_;
};

template <class T>
Bytes bytes_of_object(T& object) {
  return std::as_writable_bytes(std::span(&object, 1));
}
template <class T>
ConstBytes bytes_of_object(const T& object) {
  return std::as_bytes(std::span(&object, 1));
}

}  // namespace braid

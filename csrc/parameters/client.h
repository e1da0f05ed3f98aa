// SPDX-License-Identifier: Apache-2.0
// A worker's end towards one server: over a pair, or to the server in the same process.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "base/clock.h"
#include "parameters/pair.h"
#include "parameters/residuals.h"
#include "parameters/server.h"

namespace braid {

// A call under way. Its maker keeps it, its update and its result until it is over.
struct ClientCall {
  Call call;
  std::shared_ptr<const Table> table;  // null: none
  ConstBytes body;
  Bytes into;  // memory for the body of the answer
  Deadline deadline = kNoDeadline;

  Status status;
  Answer answer;
  bool has_begun_to_arrive = false;  // `into` may have parts of an answer

  bool is_over() const { return over_.load(std::memory_order_acquire); }
  // For clients.
  void begin() {
    has_begun_to_arrive = false;
    over_.store(false, std::memory_order_relaxed);
  }
  void finish(Status outcome) {
    status = std::move(outcome);
    over_.store(true, std::memory_order_release);
  }

 private:
  std::atomic<bool> over_{true};
};

// Thread safety: all functions may be called from any thread.
class Client {
 public:
  virtual ~Client() = default;
  // Starts a call; it is over later, or at once. Calls of one lane are answered in the order started.
  virtual void start(ClientCall& call) = 0;
  // Moves what can move. True if anything moved. Returns false at once if another thread polls.
  virtual bool poll() = 0;
  // Ok while the server is there.
  virtual Status failure() const = 0;
  // Ends all calls, now and later, with this error.
  virtual void fail(const Status& why) = 0;
  // How the server is reached: "shm, single copy".
  virtual std::string wire() const = 0;
  // Bytes of bodies sent and received.
  virtual uint64_t sent_bytes() const = 0;
  virtual uint64_t received_bytes() const = 0;
  // From now on the loss of the server is noticed even if no call is under way.
  virtual void watch() = 0;
  // Calls that are not over, but for kAttend.
  virtual size_t open_calls() const = 0;
  // Of memory that it keeps beside calls.
  virtual size_t kept_bytes() const = 0;
};

// `peer` names the server in errors: "server 2". Updates go through the codec of `residuals`, which outlive the client,
// and values come through `pull`.
std::unique_ptr<Client> make_client(std::unique_ptr<Pair> pair, std::string peer, Residuals& residuals,
                                    std::optional<Codec> pull);
// Towards a server of this process. It must outlive the client. The worker must have been admitted. Nothing is encoded.
// `residuals`: a push takes along what another server's messages have lacked.
std::unique_ptr<Client> make_client(Server& server, int worker, Residuals& residuals);

// Pushes and pulls go without messages, once the server has said where its shards lie.
std::unique_ptr<Client> make_mapped_client(std::unique_ptr<Client> messages, std::vector<Extent> extents,
                                           const ShardRule& rule, Residuals& residuals);

}  // namespace braid

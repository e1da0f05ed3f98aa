// SPDX-License-Identifier: Apache-2.0
// Sends copies of a server's shards to its backup (replica.cc), one at a time.
//
// Thread safety: one thread polls; another one may call the others but stop().
#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "parameters/client.h"
#include "parameters/server.h"

namespace braid {

class Copier {
 public:
  // `place`: of this server in the list of `servers`.
  Copier(Server& server, int place, int servers);
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // A backup must be found: connect() or missed() says what came of it. Its place, or -1 if none is needed, or none
  // is left.
  int needs_backup();
  // The backup at this place has been reached.
  void connect(int place, std::unique_ptr<Client> client);
  // The server at this place was not reached. It may have been busy, so others are tried first, and then it again.
  void missed(int place);

  // There are so many servers now.
  void grow(int servers);

  // No further copies.
  void stop();

  // Moves what can move. True if anything moved.
  bool poll();
  Deadline due() const { return server_.copy_due(); }
  size_t bytes() const;

 private:
  void start_copy();
  bool end_copy();
  void drop(const Status& why);
  int next_place() const;

  Server& server_;
  const int place_;
  int servers_;
  mutable std::mutex mutex_;
  std::map<int, int> misses_;  // by place
  bool is_looking_ = false;    // needs_backup() has given a place
  bool is_without_ = false;    // no other server was left
  int backup_ = -1;
  std::unique_ptr<Client> client_;
  bool is_under_way_ = false;
  Server::Copy copy_;
  ClientCall call_;
};

}  // namespace braid

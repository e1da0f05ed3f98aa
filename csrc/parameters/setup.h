// SPDX-License-Identifier: Apache-2.0
// What a member of a parameter service gives when it begins.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/store.h"
#include "engine/engine.h"
#include "options/options.h"
#include "parameters/server.h"

namespace braid {

inline constexpr int kMostMembers = 65536;
// From here on members are processes without a worker. Workers that come late stay below.
inline constexpr int kFirstAlone = 60000;

struct ServiceSetup {
  std::string name;
  int member = 0;
  int workers = 1;           // members 0 .. workers-1 are the workers of the beginning
  std::vector<int> servers;  // members that hold shards: shard i lies with servers[i] at first
  size_t elements = 0;
  std::vector<double> shares;    // relative sizes of the shards; empty: equal
  ServerOptions server;          // `settings` are completed by the service
  bool is_late = false;          // a worker that joins a service that runs
  Options options;               // `timeout` is the limit of every call, and of the beginning
  std::shared_ptr<Store> store;  // where the members find each other
  std::shared_ptr<Store>
      door_store;  // the same, for the thread that admits workers; may be `store` if threads may share it
  std::shared_ptr<Engine> engine;  // null: the one that all services of this process share
};

// kInvalidArgument names what is wrong.
Status check(const ServiceSetup& setup);
// Names a server in messages.
std::string server_text(int member);
// All that must be equal on all members, in words.
std::string settings_of(const ServiceSetup& setup);

}  // namespace braid

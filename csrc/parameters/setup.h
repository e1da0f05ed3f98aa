// SPDX-License-Identifier: Apache-2.0
// What a member of a parameter service gives when it begins.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/store.h"
#include "engine/engine.h"
#include "options/options.h"
#include "parameters/server.h"

namespace braid {

inline constexpr int kMostMembers = 65536;
// A server begins with this many shards at most. Values of one shard travel while updates of the next one arrive, so
// both directions of a NIC are busy. Servers that come late can take some of the shards.
inline constexpr size_t kMostPieces = 8;
inline constexpr size_t kLeastPiece = size_t{1} << 18;
// So many servers may come late.
inline constexpr int kMostNewcomers = 64;
// From here on members are processes without a worker. Workers that come late stay below.
inline constexpr int kFirstAlone = 60000;

struct ServiceSetup {
  std::string name;
  int member = 0;
  int workers = 1;           // members 0 .. workers-1 are the workers of the beginning
  std::vector<int> servers;  // members that hold shards at first, each pieces_of() of them, in order
  size_t elements = 0;
  // This member as others name it: "rank 4 (for ranks 4 to 7)". Empty: member_text().
  std::string who;
  std::vector<double> shares;  // relative sizes of the shards; empty: equal
  ServerOptions server;        // `settings` are completed by the service
  bool is_late = false;        // a worker that joins a service that runs.
  // A server without a worker that joins a service that runs, and how many numbers it holds at most. The service gives
  // it its member number.
  std::optional<uint64_t> newcomer_takes;
  // Numbers of a shard, at least, where a server has several.
  size_t least_piece = kLeastPiece;
  Options options;               // `timeout` is the limit of every call, and of the beginning
  std::shared_ptr<Store> store;  // where the members find each other
  // The same, for the thread that admits workers; may be `store` if threads may share it.
  std::shared_ptr<Store> door_store;
  std::shared_ptr<Engine> engine;  // null: the one that all services of this process share
};

// Servers may come late: some of the first ones have no worker.
bool may_grow(const ServiceSetup& setup);
// How many shards each server has at first: more than one only if each has least_piece numbers.
size_t pieces_of(size_t elements, size_t servers, size_t least_piece = kLeastPiece);
// Bytes of memory that a server needs, at most (memory_needs.h).
struct ServerNeeds {
  uint64_t whatever_it_holds = 0;
  uint64_t in_all = 0;  // with its part of the vector
};
// `share`: its part of the vector, from 0 to 1; 0: as large as the others'.
ServerNeeds needs_of(ServerOptions options, size_t elements, size_t servers, double share, size_t workers);
// The number of the server at this place of the list, which goes on with those that come late.
int server_at(const ServiceSetup& setup, int place);
// kInvalidArgument names what is wrong.
Status check(const ServiceSetup& setup);
// Names a member, or a server, by its number alone.
std::string member_text(int member);
std::string server_text(int member);
// The same, as the member itself says who it is.
std::string server_text(int member, const std::string& who);
// All that must be equal on all members, in words.
std::string settings_of(const ServiceSetup& setup);

}  // namespace braid

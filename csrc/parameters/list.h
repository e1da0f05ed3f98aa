// SPDX-License-Identifier: Apache-2.0
// What comes late to a parameter service stands in a list in the store, at braid/parameters/<name>/late/<k>:
//
//   <number>      a worker with this number
//   server <word> a server; the first one gets the first place behind the servers of the beginning
//   copies 0 1    the server at place 0 keeps copies at place 1
//
// All servers read this list in its order, so two of them never wait for each other, and all agree about places.
#pragma once

#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/store.h"

namespace braid {

// How long a reader waits for a key that may not be there.
inline constexpr milliseconds kGlance{1};
// How long two that write at the same place at the same time need to see the conflict.
inline constexpr milliseconds kSettleTime{50};
// A late worker does not wait longer than this for a server, which may have died. Nor does a server for a late worker.
inline constexpr milliseconds kLatePairs{20'000};
// Who has said that it comes makes a pair at once.
inline constexpr milliseconds kAnnouncedPair{5'000};
inline constexpr std::string_view kServerEntry = "server ";
inline constexpr std::string_view kCopiesEntry = "copies ";

std::string list_key(const std::string& name, int k);
// Where the worker at place k of the list says that it comes to the server at this place now. Whoever dies before that
// keeps nobody waiting.
std::string coming_key(const std::string& name, int server_place, int k);
// Where a member says who it is (ServiceSetup::who), before it makes pairs.
std::string who_key(const std::string& name, int member);
// Writes a text that nobody else writes at the next free place of the list; which one that was.
Result<int> write_in_list(const std::string& name, Store& store, const std::string& text);

}  // namespace braid

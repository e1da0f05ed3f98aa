// SPDX-License-Identifier: Apache-2.0
#include "parameters/setup.h"

#include <algorithm>
#include <utility>

#include "parameters/memory_needs.h"
#include "parameters/placement.h"

namespace braid {
namespace {

const char* text_of(Mode mode) {
  switch (mode) {
    case Mode::kAsync: return "async";
    case Mode::kRoundRobin: return "round_robin";
    case Mode::kSsp: return "ssp";
    case Mode::kSync: return "sync";
    case Mode::kQuorum: return "quorum";
  }
  return "?";
}

}  // namespace

std::string member_text(int member) {
  if (member < kFirstAlone) return "member " + std::to_string(member);
  return "parameter server " + std::to_string(member - kFirstAlone + 1) + " without a rank";
}

std::string server_text(int member) { return server_text(member, member_text(member)); }

std::string server_text(int member, const std::string& who) {
  return member < kFirstAlone ? "the server of " + who : who;
}

bool may_grow(const ServiceSetup& setup) {
  return std::any_of(setup.servers.begin(), setup.servers.end(), [](int server) { return server >= kFirstAlone; });
}

size_t pieces_of(size_t elements, size_t servers, size_t least_piece) {
  return std::clamp(elements / servers / least_piece, size_t{1}, kMostPieces);
}

ServerNeeds needs_of(ServerOptions options, size_t elements, size_t servers, double share, size_t workers) {
  const auto rounded = [&](double count) {
    return std::min(elements, static_cast<size_t>(count) + kGranule + 1);  // a part begins at a multiple of it
  };
  const double part = static_cast<double>(elements) * (share > 0 ? share : 1.0 / static_cast<double>(servers));
  const size_t pieces = pieces_of(elements, servers);
  const size_t most = rounded(part / static_cast<double>(pieces));
  const size_t held = rounded(part);
  options.buffers *= static_cast<int>(pieces);
  ServerNeeds needs;
  needs.whatever_it_holds = bytes_needed(options, most, {}, workers);
  const Holding shards{held, true, options.replicas > 0};
  needs.in_all = bytes_needed(options, most, {&shards, 1}, workers);
  // Of each further piece: what a copy has beside the numbers.
  if (options.replicas > 0) needs.in_all += (pieces - 1) * whole_floats(options, 0) * sizeof(float);
  return needs;
}

int server_at(const ServiceSetup& setup, int place) {
  const auto first = static_cast<int>(setup.servers.size());
  if (place < first) return setup.servers[static_cast<size_t>(place)];
  const auto alone =
      std::count_if(setup.servers.begin(), setup.servers.end(), [](int server) { return server >= kFirstAlone; });
  return kFirstAlone + static_cast<int>(alone) + place - first;
}

std::string settings_of(const ServiceSetup& setup) {
  std::string text = std::to_string(setup.elements) + " elements, rule " + to_text(setup.server.rule) + ", mode " +
                     text_of(setup.server.mode);
  if (setup.server.mode == Mode::kSsp) text += " with staleness " + std::to_string(setup.server.staleness);
  if (setup.server.mode == Mode::kQuorum) {
    text += " of at least " + std::to_string(setup.server.quorum.at_least) + " within " +
            std::to_string(setup.server.quorum.grace.count()) + " ms";
    if (setup.server.quorum.mean_rounds > 0) {
      text += ", " + std::to_string(setup.server.quorum.mean_rounds) + " rounds of means";
    }
    if (setup.server.quorum.late_goes_on) text += ", late ones go on";
  }
  if (setup.server.divides_by_staleness) text += ", rates divided by staleness";
  if (setup.server.is_relaxed()) text += ", relaxed";
  if (setup.server.replicas > 0) text += ", with a replica of each shard";
  const BodyCodecs& coding = setup.server.coding;
  if (coding.push || coding.pull) {
    text += ", pushes in " + to_text(coding.push) + ", pulls in " + to_text(coding.pull);
  }
  text += ", servers";
  for (const int server : setup.servers) text += " " + std::to_string(server);
  for (const double share : setup.shares) text += " " + std::to_string(share);
  return setup.server.settings.empty() ? text : text + ", " + setup.server.settings;
}

Status check(const ServiceSetup& setup) {
  const auto bad = [](std::string text) { return Status(Code::kInvalidArgument, std::move(text)); };
  if (setup.workers < 1 || setup.workers > kMostMembers) {
    return bad("a parameter service with " + std::to_string(setup.workers) + " workers, expected at least 1");
  }
  if (setup.member < 0 || setup.member > kMostMembers)
    return bad("member " + std::to_string(setup.member) + " is not a number");
  if (setup.is_late && setup.member >= kFirstAlone) return bad("there have been too many late workers");
  if (setup.servers.empty() || setup.servers.size() > UINT16_MAX / kMostPieces) {
    return bad("a parameter service needs 1 to " + std::to_string(UINT16_MAX / kMostPieces) + " servers");
  }
  if (setup.newcomer_takes && !may_grow(setup)) {
    return bad("servers come late only to a service that has begun with one without a worker");
  }
  for (size_t i = 0; i < setup.servers.size(); ++i) {
    if (setup.servers[i] < 0 || std::count(setup.servers.begin(), setup.servers.end(), setup.servers[i]) > 1) {
      return bad("servers must be different members, not negative numbers");
    }
  }
  if (setup.server.mode == Mode::kSsp && setup.server.staleness < 0) return bad("staleness must be 0 or more");
  const BodyCodecs& coding = setup.server.coding;
  if ((coding.push || coding.pull) && setup.server.rule.kind == RuleKind::kElastic) {
    return bad("the rule elastic takes no codec: workers push their own values, and a difference comes back");
  }
  if ((coding.push || coding.pull) && setup.elements > kMostEncodedElements) {
    return bad("a codec takes at most " + std::to_string(kMostEncodedElements) + " elements");
  }
  if (setup.server.replicas < 0 || setup.server.replicas > 1) {
    return bad("replicas is " + std::to_string(setup.server.replicas) + ", expected 0, or 1 for a second copy");
  }
  if (setup.server.replicas > 0 && setup.servers.size() < 2) {
    return bad("replicas=1 needs two servers or more: a copy lies at another server");
  }
  if (setup.server.replicas > 0 && setup.server.is_relaxed()) {
    return bad("replicas=1 needs atomic consistency: a server does not see what workers add to mapped memory");
  }
  if (setup.server.is_relaxed()) {
    if (setup.server.mode != Mode::kAsync)
      return bad("relaxed consistency needs the mode async: nobody waits for a turn");
    if (state_vectors(setup.server.rule) > 0 || setup.server.rule.compensates) {
      return bad("relaxed consistency takes rules without state: add, sgd without momentum, and elastic; not " +
                 to_text(setup.server.rule));
    }
  }
  if (setup.is_late && setup.member < setup.workers) {
    return bad("late member " + std::to_string(setup.member) + ": the numbers up to " +
               std::to_string(setup.workers - 1) + " belong to the workers of the beginning");
  }
  return {};
}

}  // namespace braid

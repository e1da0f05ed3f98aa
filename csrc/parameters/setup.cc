// SPDX-License-Identifier: Apache-2.0
#include "parameters/setup.h"

#include <algorithm>
#include <utility>

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

std::string server_text(int member) {
  if (member < kFirstAlone) return "the server of member " + std::to_string(member);
  return "parameter server " + std::to_string(member - kFirstAlone + 1) + " without a rank";
}

std::string settings_of(const ServiceSetup& setup) {
  std::string text = std::to_string(setup.elements) + " elements, rule " + to_text(setup.server.rule) + ", mode " +
                     text_of(setup.server.mode);
  if (setup.server.mode == Mode::kSsp) text += " with staleness " + std::to_string(setup.server.staleness);
  if (setup.server.mode == Mode::kQuorum) {
    text += " of at least " + std::to_string(setup.server.quorum.at_least) + " within " +
            std::to_string(setup.server.quorum.grace.count()) + " ms";
  }
  if (setup.server.divides_by_staleness) text += ", rates divided by staleness";
  if (setup.server.is_relaxed()) text += ", relaxed";
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
  if (setup.servers.empty() || setup.servers.size() > UINT16_MAX) {
    return bad("a parameter service needs 1 to 65535 servers");
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

// SPDX-License-Identifier: Apache-2.0
#include "parameters/modes.h"

#include <cstdio>

namespace braid {
namespace {

constexpr const char* kQuorumText = "quorum:";

}  // namespace

Result<Consistency> consistency_from_text(const std::string& text) {
  if (text == "atomic") return Consistency::kAtomic;
  if (text == "relaxed") return Consistency::kRelaxed;
  return Status(Code::kInvalidArgument, "consistency is '" + text + "', expected 'atomic' or 'relaxed'");
}

Result<Mode> mode_from_text(const std::string& text) {
  if (text == "async") return Mode::kAsync;
  if (text == "round_robin") return Mode::kRoundRobin;
  if (text == "ssp") return Mode::kSsp;
  if (text == "sync") return Mode::kSync;
  if (text.starts_with(kQuorumText)) return Mode::kQuorum;
  return Status(Code::kInvalidArgument, "mode is '" + text +
                                            "', expected 'async', 'round_robin', 'ssp', 'sync' or "
                                            "'quorum:at_least=N,grace_ms=N'");
}

Result<Quorum> quorum_from_text(const std::string& text) {
  Quorum quorum;
  int grace_ms = 0;
  int used = 0;
  const int found =
      std::sscanf(text.c_str(), "quorum:at_least=%d,grace_ms=%d%n", &quorum.at_least, &grace_ms, &used);
  std::string rest = found == 2 ? text.substr(static_cast<size_t>(used)) : "?";
  if (int mean_rounds = 0; std::sscanf(rest.c_str(), ",mean_rounds=%d%n", &mean_rounds, &used) == 1) {
    rest = mean_rounds >= 0 ? rest.substr(static_cast<size_t>(used)) : "?";
    quorum.mean_rounds = static_cast<uint64_t>(mean_rounds);
  }
  quorum.late_goes_on = rest == ",late=goes_on";
  if ((rest.empty() || quorum.late_goes_on) && quorum.at_least >= 1 && grace_ms >= 0) {
    quorum.grace = milliseconds(grace_ms);
    return quorum;
  }
  return Status(Code::kInvalidArgument, "mode is '" + text +
                                            "', expected 'quorum:at_least=N,grace_ms=N[,mean_rounds=N]"
                                            "[,late=goes_on]' with at least 1 worker");
}

}  // namespace braid

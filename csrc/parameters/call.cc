// SPDX-License-Identifier: Apache-2.0
#include "parameters/call.h"

#include <cmath>
#include <cstring>

#include "base/limits.h"

namespace braid {
namespace {

// The size of the body that a call of this kind has.
uint64_t body_bytes_of(const Call& call, const CallLimits& limits) {
  const uint64_t vector_bytes = call.count * sizeof(float);
  switch (call.kind) {
    case CallKind::kPush:
    case CallKind::kPushPull: return call.codec == 0 ? vector_bytes : body_bytes(limits.push, call.count);
    case CallKind::kInstall: return install_floats(call) * sizeof(float);
    case CallKind::kRestore:
    case CallKind::kReplica: return snapshot_floats(call, limits.state_vectors) * sizeof(float);
    default: return 0;
  }
}

// As HandOver says.
bool may_belong_to(HandOver hand_over, CallKind kind) {
  switch (kind) {
    case CallKind::kReplica: return hand_over == HandOver::kYes;
    case CallKind::kInstall:
    case CallKind::kLeave: return hand_over <= HandOver::kYes;
    case CallKind::kAdopt:
    case CallKind::kRestore: return hand_over <= HandOver::kKeep;
    case CallKind::kSnapshot: return hand_over <= HandOver::kYes || hand_over == HandOver::kShare;
    default: return hand_over == HandOver::kNo;
  }
}

}  // namespace

std::string name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kJoin: return "join";
    case CallKind::kInstall: return "install";
    case CallKind::kPush: return "push";
    case CallKind::kPull: return "pull";
    case CallKind::kPushPull: return "push_pull";
    case CallKind::kAdopt: return "adopt";
    case CallKind::kSnapshot: return "snapshot";
    case CallKind::kRestore: return "restore";
    case CallKind::kLeave: return "leave";
    case CallKind::kMap: return "map";
    case CallKind::kFind: return "find";
    case CallKind::kMoved: return "moved";
    case CallKind::kRest: return "rest";
    case CallKind::kLook: return "look";
    case CallKind::kReplica: return "replica";
    case CallKind::kOffer: return "offer";
    case CallKind::kAttend: return "attend";
  }
  return "an unknown call";
}

bool same(const Table& a, const Table& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

Status check(const Call& call, const CallLimits& limits) {
  if (call.version != kCallVersion) {
    return {Code::kMismatch, "it speaks version " + std::to_string(call.version) +
                                 " of the parameter service, not " + std::to_string(kCallVersion) +
                                 "; install the same braid everywhere"};
  }
  const auto kind = static_cast<uint8_t>(call.kind);
  if (kind == 0 || kind > kLastCallKind)
    return {Code::kMismatch, "it makes a call of kind " + std::to_string(kind)};
  if (!may_belong_to(call.hand_over, call.kind)) {
    return {Code::kMismatch, name_of(call.kind) + " belongs to no hand-over that there is"};
  }
  if (!std::isfinite(call.scale)) {
    return {Code::kMismatch, name_of(call.kind) + " multiplies by " + std::to_string(call.scale)};
  }
  if (call.count > limits.most_count) {
    return {Code::kMismatch,
            too_large("a shard of its call", call.count * sizeof(float), limits.most_count * sizeof(float))};
  }
  if (call.ranges > kMostRanges) {
    return {Code::kMismatch, "its table has " + std::to_string(call.ranges) + " rows, more than the " +
                                 std::to_string(kMostRanges) + " allowed"};
  }
  if (call.kind == CallKind::kJoin) {
    if (call.body_bytes <= kMostSettingsBytes) return {};
    return {Code::kMismatch, too_large("its settings", call.body_bytes, kMostSettingsBytes)};
  }
  const uint32_t known = is_push(call.kind) ? number_of(limits.push) : 0;
  if (call.codec != 0 && call.codec != known) {
    return {Code::kMismatch, name_of(call.kind) + " has a body in codec " + std::to_string(call.codec) +
                                 ", which is not that of this service (" + std::to_string(known) + ")"};
  }
  if (call.body_bytes == body_bytes_of(call, limits)) return {};
  return {Code::kMismatch, name_of(call.kind) + " has a body of " + std::to_string(call.body_bytes) +
                               " bytes, not " + std::to_string(body_bytes_of(call, limits))};
}

}  // namespace braid

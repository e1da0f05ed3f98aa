// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "transport/shm/shm.h"

namespace braid {
namespace {

struct DoorbellPage {
  std::byte segment[Segment::kReservedBytes];
  DoorbellWord word;
  alignas(64) std::atomic<uint32_t> pulse;
};

}  // namespace

Result<std::unique_ptr<ShmDoorbell>> ShmDoorbell::create() {
  Result<Segment> segment = Segment::create("braid-doorbell", sizeof(DoorbellPage));
  if (!segment.ok()) return segment.status();
  return std::unique_ptr<ShmDoorbell>(new ShmDoorbell(std::move(segment).value()));
}

Result<std::unique_ptr<ShmDoorbell>> ShmDoorbell::attach(std::string_view handle) {
  Result<Segment> segment = Segment::attach(handle);
  if (!segment.ok()) return segment.status();
  if (segment.value().size() < sizeof(DoorbellPage)) {
    return Status(Code::kInvalidArgument, "not the handle of a doorbell: '" + std::string(handle) + "'");
  }
  return std::unique_ptr<ShmDoorbell>(new ShmDoorbell(std::move(segment).value()));
}

DoorbellWord& ShmDoorbell::word() const { return reinterpret_cast<DoorbellPage*>(segment_.data())->word; }

std::atomic<uint32_t>& ShmDoorbell::pulse() const {
  return reinterpret_cast<DoorbellPage*>(segment_.data())->pulse;
}

}  // namespace braid

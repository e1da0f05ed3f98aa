// SPDX-License-Identifier: Apache-2.0
#include "transport/shm/group_endpoint.h"

#include "memory/handle_text.h"
#include "transport/shm/layout.h"

namespace braid::shm {
namespace {

constexpr const char* kForm = "braid-shm-4";  // counts up with every change of the endpoint or of the layout

}  // namespace

std::string GroupEndpoint::text() const {
  std::string line = kForm;
  for (const std::string& field :
       {std::to_string(rank), std::to_string(ranks), std::to_string(ring_bytes), std::to_string(eager_bytes),
        std::to_string(probe_address), probe.text(), inbox, board, bell}) {
    line += " " + field;
  }
  return line;
}

Result<GroupEndpoint> GroupEndpoint::parse(const std::string& text) {
  const Status refused(Code::kInvalidArgument, "not an endpoint of a group in shared memory: '" + text + "'");
  const auto fields = split(text, ' ');
  if (fields.size() != 10 || fields[0] != kForm) return refused;
  const auto rank = parse_number<Node>(fields[1]);
  const auto ranks = parse_number<int>(fields[2]);
  const auto ring_bytes = parse_number<size_t>(fields[3]);
  const auto eager_bytes = parse_number<size_t>(fields[4]);
  const auto address = parse_number<uint64_t>(fields[5]);
  const auto probe = Nonce::parse(fields[6]);
  if (!rank || !ranks || !ring_bytes || !eager_bytes || !address || !probe) return refused;
  if (*rank < 0 || *rank >= *ranks || !is_ring_size(*ring_bytes)) return refused;
  GroupEndpoint endpoint{*rank, *ranks, *ring_bytes, *eager_bytes, *address, *probe, "", "", ""};
  endpoint.inbox = fields[7];
  endpoint.board = fields[8];
  endpoint.bell = fields[9];
  if (endpoint.text() != text) return refused;  // rejects other spellings of the numbers
  return endpoint;
}

}  // namespace braid::shm

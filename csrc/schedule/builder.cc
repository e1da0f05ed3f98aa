// SPDX-License-Identifier: Apache-2.0
#include "schedule/builder.h"

#include <utility>

namespace braid {

Builder::Builder(const Collective& collective, std::string algorithm, int chunks, int aggregators) {
  schedule_.collective = collective;
  schedule_.algorithm = std::move(algorithm);
  schedule_.chunks = chunks;
  schedule_.programs.resize(collective.ranks + aggregators);
  open_.resize(schedule_.programs.size());
}

void Builder::set_shares(std::vector<uint64_t> shares) { schedule_.shares = std::move(shares); }

void Builder::send(Node node, Ref what, Node to) { open_[node].push_back({Op::kSend, what, to, {}}); }

void Builder::recv(Node node, Ref into, Node from) { open_[node].push_back({Op::kRecv, into, from, {}}); }

void Builder::reduce(Node node, Ref into, std::vector<Source> sources) {
  open_[node].push_back({Op::kReduce, into, -1, std::move(sources)});
}

void Builder::copy(Node node, Ref into, Ref from) { open_[node].push_back({Op::kCopy, into, -1, {local(from)}}); }

void Builder::add(Node node, Step step) { open_[node].push_back(std::move(step)); }

void Builder::end_round() {
  for (size_t node = 0; node < open_.size(); ++node) {
    if (open_[node].empty()) continue;
    schedule_.programs[node].push_back(std::move(open_[node]));
    open_[node].clear();
  }
}

Schedule Builder::build() && {
  end_round();
  return std::move(schedule_);
}

}  // namespace braid

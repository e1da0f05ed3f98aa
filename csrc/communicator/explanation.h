// SPDX-License-Identifier: Apache-2.0
// What a group would choose for an operation, and why, to be shown.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/dtype.h"
#include "base/status.h"
#include "codec/codec.h"
#include "schedule/collective.h"
#include "tuner/candidate.h"

namespace braid {

class Communicator;
class Tuner;

struct Explanation {
  std::string collective;
  std::string family;
  double predicted_s = 0;
  std::vector<Candidate> runners_up;  // cheapest first
  std::string reason;                 // one line
  std::vector<double> shares;         // of the vector: per rank, in families of hosts per host; empty: equal ones
  int64_t chunk_bytes = 0;            // aimed at for a chunk of one segment; 0: not cut
  int64_t segments = 1;               // into which it is cut so
};

// What a group of so many ranks with this tuner would choose, the other nodes of its topology being aggregators;
// Communicator::explain() says what the arguments and errors are.
Result<Explanation> explain(Tuner& tuner, int ranks, CollectiveKind kind, DType dtype, ReduceOp op, Node root,
                            int64_t bytes, const std::optional<Codec>& codec = std::nullopt);

// The same for names, as "all_reduce", "float32", "sum". kInvalidArgument, with those there are, for others; and
// for a codec's text, if it is not empty.
Result<Explanation> explain(Communicator& group, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec = "");
Result<Explanation> explain(Tuner& tuner, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec = "");

}  // namespace braid

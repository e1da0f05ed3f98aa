// SPDX-License-Identifier: Apache-2.0
// Explains to the user which algorithm a group would choose for an operation, and why.
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
  std::vector<double> shares;         // parts of the vector: per rank, in families of hosts per host; empty: equal
  int64_t chunk_bytes = 0;            // target size of a chunk of one segment; 0: not cut
  int64_t segments = 1;               // number of segments with this chunk size
};

// What a group of `ranks` ranks with this tuner would choose. The other nodes of the tuner's topology are
// aggregators. Communicator::explain() describes the arguments and errors.
Result<Explanation> explain(Tuner& tuner, int ranks, CollectiveKind kind, DType dtype, ReduceOp op, Node root,
                            int64_t bytes, const std::optional<Codec>& codec = std::nullopt);

// The same with names, such as "all_reduce", "float32", "sum". `codec`: the text of a codec; "" for none.
// kInvalidArgument for an unknown name, with a list of the known ones, and for a wrong codec.
Result<Explanation> explain(Communicator& group, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec = "");
Result<Explanation> explain(Tuner& tuner, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec = "");

}  // namespace braid

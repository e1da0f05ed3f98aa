// SPDX-License-Identifier: Apache-2.0
// Explains to the user which algorithm a group would choose for an operation, and why.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/copy_rates.h"
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
  std::string algorithm;
  double predicted_s = 0;
  std::vector<Candidate> runners_up;  // cheapest first
  std::string reason;                 // one line
  std::vector<double> shares;         // parts of the vector: per rank, or per host if hierarchical; empty: equal
  int64_t chunk_bytes = 0;            // target size of a chunk of one segment; 0: not cut
  int64_t segments = 1;               // number of segments with this chunk size
  double copies_s = 0;                // of a device's tensors, down and up
};

// What copies tensors of a device.
struct DeviceCopies {
  CopyRates rates;
  // Larger operations are copied in pieces of so many bytes, which overlap with the network. 0: nothing overlaps.
  int64_t piece_bytes = 0;
};

// The same for tensors of a device. In pieces an operation takes as long as its longest leg (down, network, up), and
// one piece of the others. The faster network is never the slower whole, so the choice stays. Counted are the ranks
// that copy most.
Explanation with_copies(Explanation explanation, const DeviceCopies& copies, int ranks, Node root, int64_t bytes);

// What a group of `ranks` ranks with this tuner would choose. The other nodes of the tuner's topology are
// aggregators. Communicator::explain() describes the arguments and errors.
Result<Explanation> explain(Tuner& tuner, int ranks, CollectiveKind kind, DType dtype, ReduceOp op, Node root,
                            int64_t bytes, const std::optional<Codec>& codec = std::nullopt);

// The same with names, such as "all_reduce", "float32", "sum". `codec`: the text of a codec; "" for none.
// kInvalidArgument for an unknown name, with a list of the known ones, and for a wrong codec.
// `device`: where the tensors are; without one in memory of the host.
Result<Explanation> explain(Communicator& group, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec = "",
                            const std::optional<DeviceCopies>& device = std::nullopt);
Result<Explanation> explain(Tuner& tuner, const std::string& collective, const std::string& dtype,
                            const std::string& op, Node root, int64_t bytes, const std::string& codec = "");

}  // namespace braid

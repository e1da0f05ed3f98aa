// SPDX-License-Identifier: Apache-2.0
// The wires of this build.
#pragma once

#include <memory>
#include <vector>

#include "engine/engine_impl.h"
#include "transport/wire.h"

namespace braid {

// The wires that options.transports allows, in the order of kWireNames, for `rank` of a group of `ranks`. The engine
// and `sink` outlive them.
std::vector<std::unique_ptr<Wire>> make_wires(EngineImpl& engine, const Options& options, Node rank, int ranks,
                                              FrameSink& sink);

}  // namespace braid

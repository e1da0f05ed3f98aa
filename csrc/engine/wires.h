// SPDX-License-Identifier: Apache-2.0
// The list of all kinds of wires of this build. What a group keeps of its wires is in rendezvous/rendezvous.h.
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

// SPDX-License-Identifier: Apache-2.0
#include "engine/wires.h"

#include <algorithm>
#include <array>

#include "transport/shm/wire.h"
#include "transport/tcp/wire.h"

namespace braid {
namespace {

struct Making {
  EngineImpl& engine;
  const Options& options;
  Node rank;
  int ranks;
  FrameSink& sink;
};

std::unique_ptr<Wire> make_shm(const Making& m) {
  ShmOptions shm;
  shm.single_copy = m.options.single_copy;
  return std::make_unique<ShmWire>(m.rank, m.ranks, m.sink, m.engine.shm_bell(), m.engine.deaths(), shm);
}

std::unique_ptr<Wire> make_tcp(const Making& m) {
  return std::make_unique<TcpWire>(m.rank, m.ranks, m.sink, [&engine = m.engine] { return engine.tcp(); });
}

// A row for each of kWireNames.
struct WireRow {
  std::string_view name;
  std::unique_ptr<Wire> (*make)(const Making&);
};
constexpr std::array<WireRow, kWireNames.size()> kWires = {{
    {"shm", make_shm},
    {"tcp", make_tcp},
}};
static_assert(std::ranges::equal(kWires, kWireNames, {}, &WireRow::name));

}  // namespace

std::vector<std::unique_ptr<Wire>> make_wires(EngineImpl& engine, const Options& options, Node rank, int ranks,
                                              FrameSink& sink) {
  std::vector<std::unique_ptr<Wire>> wires;
  for (const WireRow& row : kWires) {
    if (!allows_wire(options, row.name)) continue;
    wires.push_back(row.make({engine, options, rank, ranks, sink}));
  }
  return wires;
}

}  // namespace braid

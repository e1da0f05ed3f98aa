// SPDX-License-Identifier: Apache-2.0
#include "parameters/pair.h"

#include <utility>

#include "base/caught.h"
#include "engine/wires.h"

namespace braid {

Pair::Pair(std::shared_ptr<EngineImpl> engine, End end, const Options& options)
    : engine_(std::move(engine)),
      end_(end),
      mailbox_(end, 2, engine_->bell()),
      vigil_(Vigil::keep(engine_->reactor(), mailbox_, options.peer_timeout)) {}

Pair::~Pair() {
  mailbox_.close();
  if (vigil_) vigil_->end();
  wires_.leave();  // the network thread must forget the mailbox before its destruction
}

Result<std::unique_ptr<Pair>> Pair::form(std::shared_ptr<EngineImpl> engine, Store& store, End end,
                                         const std::string& name, const std::string& peer,
                                         const Options& options) {
  std::unique_ptr<Pair> pair(new Pair(std::move(engine), end, options));
  Status bad;
  const Status thrown = caught("forming a pair", [&] {
    pair->wires_.list = make_wires(*pair->engine_, options, end, 2, pair->mailbox_);
    bad = run_rendezvous(*pair->engine_, store, end, 2, name, options, pair->mailbox_, pair->wires_);
    pair->wires_.board.reset();  // pairs have no collectives
    pair->mailbox_.set_name(1 - end, peer);
    pair->mailbox_.hide_ranks();
  });
  if (!thrown.ok()) bad = thrown;
  if (!bad.ok()) {
    pair->mailbox_.fail(bad);
    return bad.within("no pair with " + peer);
  }
  return pair;
}

void Pair::send(Part part, uint64_t number, ConstBytes bytes, Request* request) {
  mailbox_.send(1 - end_, {kPointToPoint | static_cast<uint64_t>(part), number}, bytes, request);
}

void Pair::recv(Part part, uint64_t number, Bytes bytes, Request* request) {
  mailbox_.recv(1 - end_, {kPointToPoint | static_cast<uint64_t>(part), number}, bytes, request);
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "transport/tcp/tcp.h"

#include <utility>

#include "transport/tcp/interface.h"
#include "transport/tcp/listener.h"
#include "transport/tcp/membership.h"

namespace braid {
namespace {

class TcpChannel final : public Channel {
 public:
  TcpChannel(std::shared_ptr<Membership> group, Node peer) : group_(std::move(group)), link_(group_->link(peer)) {}
  // The sink destroys its channels before it is destroyed itself. Callbacks must not use it afterwards.
  ~TcpChannel() override { group_->leave(); }

  const ChannelTraits& traits() const override { return group_->traits; }
  void attached() override { link_.attached(); }
  void post(const Frame& frame, ConstBytes payload, Request* request) override {
    link_.post(frame, payload, request);
  }
  bool poll() override { return link_.poll(); }
  Status pull(uint64_t, Bytes) override { return {Code::kUnsupported, "TCP cannot read a peer's memory"}; }
  void prepare() override { link_.prepare(); }
  bool connected() override { return link_.connected(); }
  void pace(double bytes_per_s) override { link_.pace(bytes_per_s); }
  bool heard() override { return link_.heard(); }
  void close() override { link_.close(); }

 private:
  const std::shared_ptr<Membership> group_;
  TcpLink& link_;
};

}  // namespace

TcpGroup::TcpGroup(std::shared_ptr<Membership> membership) : membership_(std::move(membership)) {}

TcpGroup::~TcpGroup() { leave(); }

Result<std::unique_ptr<Channel>> TcpGroup::channel(Node peer, const std::string& address) {
  if (peer < 0 || peer >= membership_->ranks || peer == membership_->rank) {
    return Status(Code::kInvalidArgument, "there is no peer of rank " + std::to_string(peer));
  }
  const auto lock = membership_->enter();
  if (!lock) return Status(Code::kAborted, "the group was left");
  if (const Status known = membership_->link(peer).set_address(address); !known.ok()) return known;
  return std::unique_ptr<Channel>(std::make_unique<TcpChannel>(membership_, peer));
}

NicRates TcpGroup::take_rates() {
  const auto lock = membership_->enter();
  return lock ? membership_->meter().take() : NicRates{};
}

void TcpGroup::leave() { membership_->leave(); }

void TcpGroup::wait_for_last_words(Deadline deadline) { membership_->wait_for_last_words(deadline); }

Result<std::shared_ptr<TcpEndpoint>> TcpEndpoint::create(TcpOptions options, Reactor& reactor) {
  if (options.connections < 1 || options.connections > kMaxTcpConnections || options.piece_bytes == 0) {
    return Status(Code::kInvalidArgument, "TCP takes 1 to " + std::to_string(kMaxTcpConnections) +
                                              " connections, and pieces of at least one byte");
  }
  const Result<Address> address = choose_local_address(options.interface, options.reach);
  if (!address.ok()) return address.status();
  Result<Fd> socket = listen_at(address.value(), options.ports);
  if (!socket.ok()) return socket.status();
  auto listener = std::make_shared<Listener>(std::move(options), reactor, std::move(socket).value());
  if (const Status open = listener->open(); !open.ok()) return open;
  return std::make_shared<TcpEndpoint>(std::move(listener));
}

TcpEndpoint::TcpEndpoint(std::shared_ptr<Listener> listener) : listener_(std::move(listener)) {}

TcpEndpoint::~TcpEndpoint() { listener_->close(); }

std::string TcpEndpoint::address() const { return listener_->address.text(); }

std::string TcpEndpoint::place() const {
  const std::string host = listener_->address.host();
  const std::string name = interface_at(listener_->address);
  return name.empty() ? host : name + " (" + host + ")";
}

Result<std::shared_ptr<TcpGroup>> TcpEndpoint::join(const std::string& group, const std::string& secret, Node rank,
                                                    int ranks, FrameSink& sink) {
  if (secret.size() != kSecretDigits || rank < 0 || rank >= ranks) {
    return Status(Code::kInvalidArgument,
                  "a group needs a secret of " + std::to_string(kSecretDigits) + " digits, and a rank in it");
  }
  auto membership = std::make_shared<Membership>(listener_, listener_->options, listener_->reactor,
                                                 sha256(bytes_of(group)), secret, rank, ranks, sink);
  if (const Status enrolled = listener_->enroll(membership); !enrolled.ok()) return enrolled;
  return std::make_shared<TcpGroup>(std::move(membership));
}

}  // namespace braid

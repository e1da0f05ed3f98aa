// SPDX-License-Identifier: Apache-2.0
// Strangers, and members among them, greet a listener over several connections at once, in pieces of any size. Who sends
// exactly the claim that the secret and the challenge give is admitted, and nobody else is; and an honest member that
// comes last is admitted whatever the others did.
//
// Sockets are pairs, and this thread is the one that hands the listener its events: the reactor's stands still
// meanwhile, so an input always does the same. Only the random numbers of challenges differ.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <array>
#include <cstring>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "base/log.h"
#include "fuzz/targets.h"
#include "transport/tcp/greeting.h"
#include "transport/tcp/listener.h"

namespace braid::fuzz {
namespace {

const std::string kGroupName = "group";
const std::string kGroupSecret(kSecretDigits, 's');
constexpr Node kMe = 0;
constexpr int kRanks = 4;
constexpr Node kHonest = 3;  // a rank that strangers do not take
constexpr size_t kMostGuests = 6;
constexpr uint32_t kAnnounced = 3;  // connections that each peer opens

// A group that gets no frames: its sink never knows the peers' channels.
class NoSink final : public FrameSink {
 public:
  std::mutex& mutex() override { return mutex_; }
  Result<Bytes> landing(Node, const Frame&) override { throw Broken("a frame was read from a stranger"); }
  void arrived(Node, const Frame&) override { throw Broken("a frame was read from a stranger"); }
  void written(Request*) override {}
  bool awaits(size_t) const override { return false; }
  void lost(Node, Status) override {}
  void broke(const Status&) override { throw Broken("a stranger made something throw"); }

 private:
  std::mutex mutex_;
};

// While it lives the reactor's thread stands still.
class Standstill {
 public:
  explicit Standstill(Reactor& reactor) {
    reactor.run([this, until = go_on_.get_future().share()] {
      stands_.set_value();
      until.wait();
    });
    stands_.get_future().wait();
  }
  ~Standstill() { go_on_.set_value(); }

 private:
  std::promise<void> stands_, go_on_;
};

// One connection, seen from its far end.
class Guest {
 public:
  explicit Guest(const std::shared_ptr<Listener>& listener) : listener_(listener) {
    std::array<int, 2> ends{};
    require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) == 0,
            "there are sockets");
    mine_ = Fd(ends[0]);
    greeting_ = std::make_shared<Greeting>(listener, Fd(ends[1]), Address());
    const std::lock_guard lock(listener_->mutex());
    greeting_->start();
    require(hear(&challenge_, sizeof challenge_) == sizeof challenge_, "everybody gets a challenge");
  }
  ~Guest() {
    const std::lock_guard lock(listener_->mutex());
    greeting_->refuse("");
  }
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  const Challenge& challenge() const { return challenge_; }
  // The claim of a member, for this connection.
  Claim claim(Node from, Node to, uint32_t index, const std::string& group, const std::string& secret) const {
    Claim claim;
    claim.opening.from_rank = from;
    claim.opening.to_rank = to;
    claim.opening.index = index;
    claim.opening.nonce = {7, 7};
    claim.opening.group = sha256(bytes_of(group));
    claim.proof = prove_connect(secret, challenge_, claim.opening);
    return claim;
  }
  void say(Input bytes) {
    if (bytes.empty()) return;
    if (::send(mine_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(bytes.size()))
      return;
    // What comes behind a whole claim in the same piece makes it none; what comes later is of no interest.
    if (said_.size() < sizeof(Claim)) said_.insert(said_.end(), bytes.begin(), bytes.end());
    greeting_->on_events(EPOLLIN);
  }
  // Exactly this, once.
  bool has_said(const Claim& claim) const {
    return said_.size() == sizeof claim && std::memcmp(said_.data(), &claim, sizeof claim) == 0;
  }
  size_t said_bytes() const { return said_.size(); }
  // What the listener has said to a claim, proving that it knows the secret, too; nothing else may come.
  bool is_admitted(const Claim& claim) {
    Digest proof{};
    if (hear(&proof, sizeof proof) < sizeof proof) return false;
    if (proof == prove_taken(kGroupSecret, challenge_, claim.opening)) return false;
    require(proof == prove_accept(kGroupSecret, challenge_, claim.opening), "only a proof is sent");
    return true;
  }
  bool hears_nothing() {
    std::byte any{};
    return hear(&any, sizeof any) == 0;
  }

 private:
  size_t hear(void* into, size_t bytes) {
    const ssize_t got = ::recv(mine_.get(), into, bytes, 0);
    return got > 0 ? static_cast<size_t>(got) : 0;
  }

  const std::shared_ptr<Listener> listener_;
  Fd mine_;
  std::shared_ptr<Greeting> greeting_;
  Challenge challenge_;
  std::vector<uint8_t> said_;
};

// A guest, and the best claim that it could make.
struct Visit {
  std::unique_ptr<Guest> guest;
  Claim claim;
  bool is_right = false;  // of a member that may have this connection
  bool is_told = false;   // what became of it
};

class Reception {
 public:
  Reception() {
    const auto joined = TcpEndpoint(listener()).join(kGroupName, kGroupSecret, kMe, kRanks, sink_);
    require(joined.ok(), "a group is joined");
    group_ = joined.value();
  }

  void run(Reader& reader) {
    const Standstill still(reactor());
    while (!reader.empty()) {
      const uint8_t choice = reader.byte();
      if (choice < 64 && visits_.size() < kMostGuests) {
        visits_.push_back(arrive(reader));
      } else if (!visits_.empty()) {
        Visit& visit = visits_[choice % visits_.size()];
        choice < 160 ? say_claim(visit, reader) : say_anything(visit, reader);
        settle(visit);
      }
    }
    Visit honest{std::make_unique<Guest>(listener()), {}, true, false};
    honest.claim = honest.guest->claim(kHonest, kMe, 0, kGroupName, kGroupSecret);
    say(honest, 0, sizeof(Claim), 0);
    require(honest.guest->is_admitted(honest.claim), "an honest member is admitted");
    visits_.clear();
  }

 private:
  // Lives as long as the process, like its thread.
  static Reactor& reactor() {
    static Reactor* const one = new Reactor;
    return *one;
  }
  static const std::shared_ptr<Listener>& listener() {
    static const auto* const one = [] {
      set_log_sink([](LogLevel, const char*) {});
      TcpOptions options;
      options.connections = kAnnounced;
      return new std::shared_ptr<Listener>(std::make_shared<Listener>(options, reactor(), Fd()));
    }();
    return *one;
  }

  Visit arrive(Reader& reader) {
    Visit visit{std::make_unique<Guest>(listener()), {}, false, false};
    const uint8_t what = reader.byte();
    const Node from = what & 1 ? reader.byte() % 8 - 2 : 1;
    const Node to = what & 2 ? reader.byte() % 8 - 2 : kMe;
    const uint32_t index = what & 4 ? reader.byte() * (what & 128 ? 0x1000001u : 1u) : 0;
    const std::string group = what & 8 ? "another" : kGroupName;
    const std::string secret = what & 16 ? std::string(kSecretDigits, 't') : kGroupSecret;
    visit.claim = visit.guest->claim(from == kHonest ? 2 : from, to, index, group, secret);
    if ((what & 32) != 0) visit.claim.opening.version = reader.byte();
    // A proof heard on another connection.
    if ((what & 64) != 0 && !visits_.empty()) visit.claim.proof = visits_.back().claim.proof;
    const Opening& opening = visit.claim.opening;
    const bool is_member = opening.from_rank > 0 && opening.from_rank < kRanks && to == kMe;
    visit.is_right = is_member && index < kAnnounced && group == kGroupName && secret == kGroupSecret &&
                     opening.version == kHandshakeVersion && ((what & 64) == 0 || visits_.empty());
    return visit;
  }

  void say(Visit& visit, size_t begin, size_t bytes, uint8_t flip) {
    std::array<uint8_t, sizeof(Claim)> all{};
    std::memcpy(all.data(), &visit.claim, all.size());
    std::vector<uint8_t> part(all.begin() + static_cast<ptrdiff_t>(begin),
                              all.begin() + static_cast<ptrdiff_t>(std::min(begin + bytes, all.size())));
    if (!part.empty()) part[part.size() / 2] ^= flip;
    visit.guest->say(part);
  }
  // More of the claim, perhaps with a bit turned over.
  void say_claim(Visit& visit, Reader& reader) {
    const uint8_t how = reader.byte();
    const size_t bytes = how & 1 ? reader.byte() : sizeof(Claim);
    say(visit, std::min(visit.guest->said_bytes(), sizeof(Claim)), bytes, (how & 6) == 6 ? how & 0xf8 : 0);
  }
  void say_anything(Visit& visit, Reader& reader) { visit.guest->say(reader.take(reader.byte())); }

  void settle(Visit& visit) {
    if (visit.is_told) return;
    if (!visit.is_right || !visit.guest->has_said(visit.claim)) {
      require(visit.guest->hears_nothing(), "nobody without the secret is admitted");
      return;
    }
    visit.is_told = true;
    const bool is_new = taken_.insert({visit.claim.opening.from_rank, visit.claim.opening.index}).second;
    const bool admitted = visit.guest->is_admitted(visit.claim);
    require(!admitted || is_new, "no connection is there twice");
    require(admitted || !is_new, "a member is admitted");
  }

  NoSink sink_;
  std::shared_ptr<TcpGroup> group_;
  std::vector<Visit> visits_;
  std::set<std::pair<Node, uint32_t>> taken_;
};

}  // namespace

void greeting_target(Input input) {
  Reader reader(input);
  Reception().run(reader);
}

}  // namespace braid::fuzz

// SPDX-License-Identifier: Apache-2.0
// Shared memory between two processes, message by message: round trips and one-way streams, for each of the three
// ways a message can go.
//
//   eager    through the ring at once, two copies
//   offer    read by the receiver out of the sender's memory, one copy and a system call
//   pieces   through the ring when the receiver is ready, two copies
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "transport/mailbox.h"
#include "transport/shm/shm.h"

namespace braid {
namespace {

constexpr int kRepetitions = 7;  // the best one counts: the others were disturbed

enum class Way { kEager, kOffer, kPieces };

ShmOptions options_for(Way way, size_t ring_bytes) {
  ShmOptions options;
  options.ring_bytes = ring_bytes;
  options.eager_bytes = way == Way::kEager ? ring_bytes : 0;
  options.single_copy = way == Way::kOffer;
  return options;
}

void give_up(const Status& status) {
  std::fprintf(stderr, "shm_bench: %s\n", status.message().c_str());
  std::exit(1);
}

void require(const Status& status) {
  if (!status.ok()) give_up(status);
}

template <class T>
T take(Result<T> result) {
  if (!result.ok()) give_up(result.status());
  return std::move(result).value();
}

class Side {
 public:
  Side(Node rank, int socket, const ShmOptions& options)
      : peer_(1 - rank),
        socket_(socket),
        bell_(take(ShmDoorbell::create())),
        watch_(make_death_watch()),
        group_(take(ShmGroup::create(rank, 2, *bell_, *watch_, options))),
        mailbox_(rank, 2, bell_->word()) {
    tell(group_->endpoint());
    require(group_->connect(peer_, hear()));
    tell(group_->can_read(peer_) ? "reads" : "connected");
    mailbox_.attach(peer_, group_->channel(peer_, mailbox_, hear() == "reads"));
  }

  void send(uint64_t index, ConstBytes bytes) {
    Request request;
    mailbox_.send(peer_, {0, index}, bytes, &request);
    wait(request);
  }
  void recv(uint64_t index, Bytes bytes) {
    Request request;
    mailbox_.recv(peer_, {0, index}, bytes, &request);
    wait(request);
  }

  void exchange(ConstBytes out, Bytes in) {
    Request sent, received;
    mailbox_.recv(peer_, {0, 0}, in, &received);
    mailbox_.send(peer_, {0, 0}, out, &sent);
    wait(received);
    wait(sent);
  }

 private:
  void wait(Request& request) {
    Waiter waiter(bell_->word());
    while (!request.done()) {
      if (mailbox_.poll() || request.done()) {
        waiter.moved();
      } else {
        waiter.idle(kNoDeadline);
      }
    }
    require(request.status());
  }
  void tell(const std::string& line) {
    const std::string text = line + "\n";
    if (::write(socket_, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::exit(2);
  }
  std::string hear() {
    std::string line;
    for (char c = 0; ::read(socket_, &c, 1) == 1 && c != '\n';) line += c;
    return line;
  }

  const Node peer_;
  const int socket_;
  std::unique_ptr<ShmDoorbell> bell_;
  std::unique_ptr<DeathWatch> watch_;
  std::unique_ptr<ShmGroup> group_;
  Mailbox mailbox_;
};

// Memory aligned like a tensor's. (Unaligned memory costs some CPUs several times as much to copy, whoever copies.)
class Memory {
 public:
  explicit Memory(size_t bytes)
      : data_(static_cast<std::byte*>(::operator new(bytes, kAlignment))), bytes_(bytes) {
    std::memset(data_, 1, bytes);
  }
  ~Memory() { ::operator delete(data_, kAlignment); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  operator Bytes() { return {data_, bytes_}; }             // NOLINT(google-explicit-constructor)
  operator ConstBytes() const { return {data_, bytes_}; }  // NOLINT(google-explicit-constructor)

 private:
  static constexpr std::align_val_t kAlignment{64};
  std::byte* const data_;
  const size_t bytes_;
};

double now_us() { return std::chrono::duration<double, std::micro>(Clock::now().time_since_epoch()).count(); }

// Microseconds for one way of a round trip.
double round_trips(Side& side, bool leads, size_t bytes, int rounds) {
  Memory memory(bytes);
  double best = 1e30;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const double start = now_us();
    for (int i = 0; i < rounds; ++i) {
      if (leads) side.send(0, memory);
      side.recv(0, memory);
      if (!leads) side.send(0, memory);
    }
    best = std::min(best, (now_us() - start) / rounds / 2);
  }
  return best;
}

// Gigabytes per second of messages that all go one way.
double stream(Side& side, bool leads, size_t bytes, int rounds) {
  Memory memory(bytes);
  std::byte answer{};
  double best = 0;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const double start = now_us();
    for (int i = 0; i < rounds; ++i) {
      if (leads) {
        side.send(0, memory);
      } else {
        side.recv(0, memory);
      }
    }
    if (leads) {
      side.recv(1, {&answer, 1});
    } else {
      side.send(1, {&answer, 1});
    }
    best = std::max(best, static_cast<double>(bytes) * rounds / (now_us() - start) / 1e3);
  }
  return best;
}

// Microseconds for an exchange: both send and both receive, as ranks do in most collectives.
double exchanges(Side& side, size_t bytes, int rounds) {
  Memory out(bytes), in(bytes);
  double best = 1e30;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    const double start = now_us();
    for (int i = 0; i < rounds; ++i) side.exchange(out, in);
    best = std::min(best, (now_us() - start) / rounds);
  }
  return best;
}

// Runs one measurement in two processes; the leader's number.
template <class Measure>
double measure(Way way, size_t ring_bytes, const Measure& body) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) std::exit(2);
  const pid_t child = ::fork();
  if (child == 0) {
    {
      Side side(1, ends[1], options_for(way, ring_bytes));
      body(side, false);
    }
    ::_exit(0);
  }
  double result = 0;
  {
    Side side(0, ends[0], options_for(way, ring_bytes));
    result = body(side, true);
  }
  ::waitpid(child, nullptr, 0);
  ::close(ends[0]);
  ::close(ends[1]);
  return result;
}

std::string size_text(size_t bytes) {
  if (bytes >= 1 << 20) return std::to_string(bytes >> 20) + " MiB";
  return bytes >= 1 << 10 ? std::to_string(bytes >> 10) + " KiB" : std::to_string(bytes) + " B";
}

// A table of one row per size and one column per way. Where "eager" passes "offer" is the place for eager_bytes.
template <class Measure>
void table(const char* title, size_t first, size_t last, size_t ring_bytes, const Measure& body) {
  // Eager messages of up to 64 KiB only go through a ring more than four times as large.
  const size_t wide_ring = std::max(ring_bytes, size_t{512} * 1024);
  std::printf("%s, us\n%10s %10s %10s %10s\n", title, "size", "eager", "offer", "pieces");
  for (size_t bytes = first; bytes <= last; bytes *= bytes < 1024 ? 4 : 2) {
    const int rounds = static_cast<int>(std::clamp<size_t>((size_t{32} << 20) / bytes, 20, 10'000));
    const auto measured = [&](Way way) {
      const size_t ring = way == Way::kEager ? wide_ring : ring_bytes;
      return measure(way, ring, [&](Side& side, bool leads) { return body(side, leads, bytes, rounds); });
    };
    std::printf("%10s ", size_text(bytes).c_str());
    if (bytes < wide_ring / 4) {
      std::printf("%10.2f ", measured(Way::kEager));
    } else {
      std::printf("%10s ", "-");
    }
    std::printf("%10.2f ", measured(Way::kOffer));
    std::printf("%10.2f\n", measured(Way::kPieces));
    std::fflush(stdout);
  }
  std::printf("\n");
}

void bandwidths(size_t ring_bytes) {
  std::printf("one-way stream, GB/s\n%10s %10s %10s\n", "size", "offer", "pieces");
  for (size_t bytes = 64 * 1024; bytes <= 16 << 20; bytes *= 2) {
    const int rounds = static_cast<int>(std::max<size_t>(8, (size_t{64} << 20) / bytes));
    const auto body = [=](Side& side, bool leads) { return stream(side, leads, bytes, rounds); };
    std::printf("%10s %10.2f ", size_text(bytes).c_str(), measure(Way::kOffer, ring_bytes, body));
    std::printf("%10.2f\n", measure(Way::kPieces, ring_bytes, body));
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace braid

// Usage: shm_bench [ring KiB] [spin us]
int main(int argc, char** argv) {
  const size_t ring_kib = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 128;
  const long spin_us = argc > 2 ? std::strtol(argv[2], nullptr, 10) : 20;
  braid::set_waiting(spin_us * 1000, false);
  std::printf("two processes, rings of %zu KiB, waiting spins for %ld us\n\n", ring_kib, spin_us);
  std::fflush(stdout);  // before any fork, or children print it again
  const size_t ring_bytes = ring_kib * 1024;
  braid::table("one way of a round trip", 8, 64 * 1024, ring_bytes, braid::round_trips);
  braid::table("exchange, both ways at once", 1024, 4 << 20, ring_bytes,
               [](auto& side, bool, size_t bytes, int rounds) { return braid::exchanges(side, bytes, rounds); });
  braid::bandwidths(ring_bytes);
}

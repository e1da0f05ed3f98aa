// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "base/caught.h"
#include "parameters/client.h"

namespace braid {
namespace {

bool same(const Table& a, const Table& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
}

class RemoteClient final : public Client {
 public:
  RemoteClient(std::unique_ptr<Pair> pair, std::string peer) : pair_(std::move(pair)), peer_(std::move(peer)) {}
  ~RemoteClient() override { fail({Code::kAborted, "the service was closed"}); }

  void start(ClientCall& call) override;
  bool poll() override;
  Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void fail(const Status& why) override {
    const std::lock_guard lock(mutex_);
    fail_locked(why);
  }
  std::string wire() const override { return pair_->wire(); }
  uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }
  uint64_t received_bytes() const override { return received_bytes_.load(std::memory_order_relaxed); }

 private:
  struct Open {  // a call on its way
    explicit Open(ClientCall& started) : call(&started) {}
    ClientCall* call;
    Request sends[3];
    bool is_posted = false;  // the receive of the answer
    bool has_answer = false;
    Request receive;
    std::string text;  // the reason of a failure
  };

  bool step();
  bool take_answer(Open& open);
  void finish_front(Status outcome);
  void fail_locked(const Status& why);

  const std::unique_ptr<Pair> pair_;
  const std::string peer_;
  mutable std::mutex mutex_;
  std::deque<Open> open_;  // by number, from first_
  uint64_t first_ = 0;
  Table table_;  // the last one sent
  Status failure_;
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> received_bytes_{0};
};

void RemoteClient::start(ClientCall& call) {
  call.begin();
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return call.finish(failure_);
  const Status thrown = caught("starting a call", [&] {
    const uint64_t number = first_ + open_.size();
    Open& open = open_.emplace_back(call);
    call.call.body_bytes = call.body.size();
    call.call.ranges = 0;
    if (call.table && !same(*call.table, table_)) {
      table_ = *call.table;
      call.call.ranges = static_cast<uint32_t>(table_.size());
    }
    pair_->send(Pair::Part::kCall, number, bytes_of_object(std::as_const(call.call)), &open.sends[0]);
    if (call.call.ranges > 0) {
      pair_->send(Pair::Part::kTable, number, std::as_bytes(std::span(*call.table)), &open.sends[1]);
    }
    if (!call.body.empty()) pair_->send(Pair::Part::kBody, number, call.body, &open.sends[2]);
    sent_bytes_.fetch_add(call.body.size(), std::memory_order_relaxed);
  });
  if (!thrown.ok()) fail_locked(thrown);
}

bool RemoteClient::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !failure_.ok()) return false;
  bool moved = pair_->poll();
  const Status thrown = caught("taking an answer", [&] {
    while (failure_.ok() && step()) moved = true;
  });
  if (!thrown.ok()) fail_locked(thrown);
  return moved;
}

bool RemoteClient::step() {
  if (open_.empty()) return false;
  Open& open = open_.front();
  ClientCall& call = *open.call;
  if (!open.is_posted) {
    open.is_posted = true;
    pair_->recv(Pair::Part::kAnswer, first_, bytes_of_object(call.answer), &open.receive);
  }
  if (!open.receive.done()) {
    if (Clock::now() < call.deadline) return false;
    fail_locked({Code::kTimeout, peer_ + " has not answered " + name_of(call.call.kind) + " in time"});
    return true;
  }
  for (const Request& sent : open.sends) {
    if (sent.done() && !sent.status().ok()) {
      fail_locked(sent.status());
      return true;
    }
  }
  if (!open.receive.status().ok()) {
    fail_locked(open.receive.status());
    return true;
  }
  if (!open.has_answer) return take_answer(open);
  // An answer proves that the server has all parts of the call.
  if (!std::all_of(std::begin(open.sends), std::end(open.sends),
                   [](const Request& sent) { return sent.done(); })) {
    return false;
  }
  received_bytes_.fetch_add(call.answer.body_bytes, std::memory_order_relaxed);
  if (call.answer.verdict == Verdict::kFailed) {
    const bool is_known = call.answer.code > Code::kOk && call.answer.code <= Code::kInternal;
    finish_front({is_known ? call.answer.code : Code::kInternal, peer_ + ": " + open.text});
  } else {
    finish_front({});
  }
  return true;
}

// Receives the body of an answer, if it has one.
bool RemoteClient::take_answer(Open& open) {
  open.has_answer = true;
  const ClientCall& call = *open.call;
  const Answer& answer = call.answer;
  const bool failed = answer.verdict == Verdict::kFailed;
  const uint64_t expected =
      failed ? std::min<uint64_t>(answer.body_bytes, kMostAnswerTextBytes) : call.into.size();
  if (answer.version != kCallVersion || answer.body_bytes != expected) {
    fail_locked({Code::kMismatch, peer_ + " answers " + name_of(call.call.kind) + " with " +
                                      std::to_string(answer.body_bytes) + " bytes, not " +
                                      std::to_string(expected) + "; is braid the same everywhere?"});
    return true;
  }
  if (answer.body_bytes == 0) return true;
  if (failed) open.text.resize(answer.body_bytes);
  const Bytes into = failed ? std::as_writable_bytes(std::span(open.text)) : call.into;
  pair_->recv(Pair::Part::kAnswerBody, first_, into, &open.receive);
  return true;
}

void RemoteClient::finish_front(Status outcome) {
  ClientCall* const call = open_.front().call;
  open_.pop_front();
  ++first_;
  call->finish(std::move(outcome));
}

// The pair ends first: from then on nobody touches the memory of calls.
void RemoteClient::fail_locked(const Status& why) {
  if (!failure_.ok()) return;
  failure_ = why.within(peer_ + " is lost");
  pair_->fail(why);
  while (!open_.empty()) finish_front(failure_);
}

}  // namespace

std::unique_ptr<Client> make_client(std::unique_ptr<Pair> pair, std::string peer) {
  return std::make_unique<RemoteClient>(std::move(pair), std::move(peer));
}

}  // namespace braid

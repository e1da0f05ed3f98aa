// SPDX-License-Identifier: Apache-2.0
// A worker's end towards a server in another process, over a pair. See client.h.
#include <algorithm>
#include <map>
#include <utility>

#include "base/caught.h"
#include "parameters/client.h"
#include "parameters/coded_values.h"

namespace braid {
namespace {

bool brings_values(const ClientCall& call) {
  return !call.into.empty() && (call.call.kind == CallKind::kPull || call.call.kind == CallKind::kPushPull);
}

const float* floats(ConstBytes bytes) { return reinterpret_cast<const float*>(bytes.data()); }

class RemoteClient final : public Client {
 public:
  RemoteClient(std::unique_ptr<Pair> pair, std::string peer, Residuals& residuals, std::optional<Codec> pull)
      : pair_(std::move(pair)), peer_(std::move(peer)), residuals_(residuals), pull_(pull) {}
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
  // A receive that nothing matches: it fails with the pair.
  void watch() override {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_watching_, true) || !failure_.ok()) return;
    watch_.start();
    pair_->recv(Pair::Part::kNever, 0, bytes_of_object(never_), &watch_);
  }
  size_t open_calls() const override {
    const std::lock_guard lock(mutex_);
    size_t calls = 0;
    for (const auto& [index, lane] : lanes_) {
      for (const Open& open : lane.open) calls += open.call->call.kind == CallKind::kAttend ? 0 : 1;
    }
    return calls;
  }
  size_t kept_bytes() const override;

 private:
  using Message = std::vector<std::byte>;
  struct Open {  // a call on its way
    explicit Open(ClientCall& started) : call(&started) {}
    ClientCall* call;
    Request sends[3];
    bool is_posted = false;  // the receive of the answer
    bool has_answer = false;
    Request receive;
    std::string text;  // the reason of a failure
    bool is_encoded = false;
    Message update;  // encoded; kept until the server has applied it
    Message values;  // encoded
  };
  struct Lane {
    explicit Lane(size_t number) : index(number) {}
    const size_t index;
    std::deque<Open> open;  // by number, from `first`
    uint64_t first = 0;
    Table table;  // the last one sent
  };

  bool step(Lane& lane);
  bool take_answer(Lane& lane);
  void encode_update(Open& open);
  // A push that was not applied: its update belongs to the residual again.
  void keep(const Open& open);
  Status decode_values(Open& open);
  Message message_of(size_t bytes);
  void finish_front(Lane& lane, Status outcome);
  void fail_locked(const Status& why);

  const std::unique_ptr<Pair> pair_;
  const std::string peer_;
  Residuals& residuals_;
  const std::optional<Codec> pull_;
  mutable std::mutex mutex_;
  std::map<size_t, Lane> lanes_;
  ReceivedValues values_;
  std::vector<Message> spare_;  // memory of earlier messages
  bool is_watching_ = false;
  std::byte never_{};
  Request watch_;
  Status failure_;
  std::atomic<uint64_t> sent_bytes_{0};
  std::atomic<uint64_t> received_bytes_{0};
};

void RemoteClient::start(ClientCall& call) {
  call.begin();
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) {
    keep(Open(call));
    return call.finish(failure_);
  }
  const Status thrown = caught("starting a call", [&] {
    Lane& lane = lanes_.try_emplace(lane_of(call.call), lane_of(call.call)).first->second;
    const uint64_t number = lane_number(lane.index, lane.first + lane.open.size());
    Open& open = lane.open.emplace_back(call);
    encode_update(open);
    const ConstBytes body = open.is_encoded ? ConstBytes(open.update) : call.body;
    call.call.body_bytes = body.size();
    call.call.ranges = 0;
    if (call.table && !same(*call.table, lane.table)) {
      lane.table = *call.table;
      call.call.ranges = static_cast<uint32_t>(lane.table.size());
    }
    pair_->send(Pair::Part::kCall, number, bytes_of_object(std::as_const(call.call)), &open.sends[0]);
    if (call.call.ranges > 0) {
      pair_->send(Pair::Part::kTable, number, std::as_bytes(std::span(*call.table)), &open.sends[1]);
    }
    if (!body.empty()) pair_->send(Pair::Part::kBody, number, body, &open.sends[2]);
    sent_bytes_.fetch_add(body.size(), std::memory_order_relaxed);
  });
  if (!thrown.ok()) fail_locked(thrown);
  if (!thrown.ok() && !call.is_over()) call.finish(failure_);  // it has come into no lane
}

bool RemoteClient::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock || !failure_.ok()) return false;
  bool moved = pair_->poll();
  const Status thrown = caught("taking an answer", [&] {
    bool is_idle = true;
    for (auto& [index, lane] : lanes_) {
      while (failure_.ok() && step(lane)) moved = true;
      is_idle &= lane.open.empty();
    }
    if (is_watching_ && failure_.ok() && is_idle && watch_.done()) fail_locked(watch_.status());
  });
  if (!thrown.ok()) fail_locked(thrown);
  return moved;
}

bool RemoteClient::step(Lane& lane) {
  if (lane.open.empty()) return false;
  Open& open = lane.open.front();
  ClientCall& call = *open.call;
  if (!open.is_posted) {
    open.is_posted = true;
    pair_->recv(Pair::Part::kAnswer, lane_number(lane.index, lane.first), bytes_of_object(call.answer),
                &open.receive);
  }
  if (!open.receive.done()) {
    // In the other lanes a call may wait for other workers. It is for them to say how long that may last.
    if (lane.index > 0 || Clock::now() < call.deadline) return false;
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
  if (!open.has_answer) return take_answer(lane);
  // An answer proves that the server has all parts of the call.
  if (!std::all_of(std::begin(open.sends), std::end(open.sends),
                   [](const Request& sent) { return sent.done(); })) {
    return false;
  }
  received_bytes_.fetch_add(call.answer.body_bytes, std::memory_order_relaxed);
  if (call.answer.verdict == Verdict::kFailed) {
    const bool is_known = call.answer.code > Code::kOk && call.answer.code <= Code::kInternal;
    finish_front(lane, {is_known ? call.answer.code : Code::kInternal, peer_ + ": " + open.text});
  } else if (Status bad = decode_values(open); !bad.ok()) {
    fail_locked(bad);
  } else {
    finish_front(lane, {});
  }
  return true;
}

// Receives the body of an answer, if it has one.
bool RemoteClient::take_answer(Lane& lane) {
  Open& open = lane.open.front();
  open.has_answer = true;
  ClientCall& call = *open.call;
  const Answer& answer = call.answer;
  const bool failed = answer.verdict == Verdict::kFailed;
  const bool is_coded = !failed && answer.codec != 0 && brings_values(call) && answer.codec == number_of(pull_);
  const size_t bytes = answer.verdict == Verdict::kWait ? 0 : call.into.size();
  const size_t whole = is_coded ? body_bytes(pull_, call.call.count) : bytes;
  const uint64_t expected = failed ? std::min<uint64_t>(answer.body_bytes, kMostAnswerTextBytes) : whole;
  if (answer.version != kCallVersion || answer.body_bytes != expected) {
    fail_locked({Code::kMismatch, peer_ + " answers " + name_of(call.call.kind) + " with " +
                                      std::to_string(answer.body_bytes) + " bytes, not " +
                                      std::to_string(expected) + "; is braid the same everywhere?"});
    return true;
  }
  if (answer.body_bytes == 0) return true;
  if (failed) open.text.resize(answer.body_bytes);
  if (is_coded) open.values = message_of(whole);
  call.has_begun_to_arrive = !failed && !is_coded;
  const Bytes coded = is_coded ? Bytes(open.values) : call.into;
  const Bytes into = failed ? std::as_writable_bytes(std::span(open.text)) : coded;
  pair_->recv(Pair::Part::kAnswerBody, lane_number(lane.index, lane.first), into, &open.receive);
  return true;
}

// ---- Codecs

void RemoteClient::encode_update(Open& open) {
  Call& call = open.call->call;
  call.codec = 0;  // a lost push may come again as a pull
  if (!is_push(call.kind) || !residuals_.codec() || call.count == 0) return;
  open.update = message_of(body_bytes(residuals_.codec(), call.count));
  residuals_.encode(call.shard, floats(open.call->body), call.scale, open.update);
  open.is_encoded = true;
  call.codec = number_of(residuals_.codec());
  call.scale = 1;
}

void RemoteClient::keep(const Open& open) {
  const Call& call = open.call->call;
  if (open.is_encoded) {
    residuals_.give_back(call.shard, open.update);
  } else if (is_push(call.kind)) {
    residuals_.give_back(call.shard, floats(open.call->body), call.scale);
  }
}

Status RemoteClient::decode_values(Open& open) {
  const ClientCall& call = *open.call;
  if (!pull_ || !brings_values(call)) return {};
  auto* const out = reinterpret_cast<float*>(call.into.data());
  if (call.answer.codec == 0) {
    values_.take(call.call.shard, out, call.call.count);
    return {};
  }
  return values_.add(call.call.shard, *pull_, open.values, out, call.call.count);
}

RemoteClient::Message RemoteClient::message_of(size_t bytes) {
  Message message;
  if (!spare_.empty()) {
    message = std::move(spare_.back());
    spare_.pop_back();
  }
  message.resize(bytes);
  return message;
}

size_t RemoteClient::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  size_t bytes = values_.bytes();
  for (const Message& message : spare_) bytes += message.capacity();
  for (const auto& [index, lane] : lanes_) {
    for (const Open& open : lane.open) bytes += open.update.capacity() + open.values.capacity();
  }
  return bytes;
}

void RemoteClient::finish_front(Lane& lane, Status outcome) {
  Open& open = lane.open.front();
  ClientCall* const call = open.call;
  if (!outcome.ok()) keep(open);
  for (Message* message : {&open.update, &open.values}) {
    if (message->capacity() > 0) spare_.push_back(std::move(*message));
  }
  lane.open.pop_front();
  ++lane.first;
  call->finish(std::move(outcome));
}

// The pair ends first: from then on nobody touches the memory of calls.
void RemoteClient::fail_locked(const Status& why) {
  if (!failure_.ok()) return;
  failure_ = (why.ok() ? Status(Code::kPeerLost, "it has left") : why).within(peer_ + " is lost");
  pair_->fail(why);
  for (auto& [index, lane] : lanes_) {
    while (!lane.open.empty()) finish_front(lane, failure_);
  }
}

}  // namespace

std::unique_ptr<Client> make_client(std::unique_ptr<Pair> pair, std::string peer, Residuals& residuals,
                                    std::optional<Codec> pull) {
  return std::make_unique<RemoteClient>(std::move(pair), std::move(peer), residuals, pull);
}

}  // namespace braid

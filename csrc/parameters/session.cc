// SPDX-License-Identifier: Apache-2.0
#include "parameters/session.h"

#include <utility>

#include "base/caught.h"
#include "base/log.h"

namespace braid {

Session::Session(Server& server, int worker, std::unique_ptr<Pair> pair)
    : server_(server), worker_(worker), pair_(std::move(pair)), values_(server.coding().pull, worker) {
  begin_call();
}

Session::~Session() {
  if (!is_over()) end({Code::kAborted, "the server ends"});
  server_.count_bytes(-static_cast<ptrdiff_t>(counted_bytes_));
}

bool Session::poll() {
  if (is_over()) return false;
  bool moved = pair_->poll();
  Status bad = caught("serving a worker", [&] {
    while (!is_over() && step()) moved = true;
  });
  if (!bad.ok()) end(bad);
  return moved;
}

void Session::begin_call() {
  job_ = std::make_unique<Job>();
  job_->worker = worker_;
  job_->is_remote = true;
  job_->table = &table_;
  request_.start();
  state_ = State::kCall;
  pair_->recv(Pair::Part::kCall, number_, bytes_of_object(job_->call), &request_);
}

// One step of the present call. False if it must wait.
bool Session::step() {
  switch (state_) {
    case State::kBuffer: find_memory(); return state_ != State::kBuffer;
    case State::kServing:
      if (!job_->done.load(std::memory_order_acquire)) return false;
      answer_done();
      return true;
    case State::kAnswering:
      if (!request_.done() || !body_request_.done()) return false;
      if (!request_.status().ok() || leaves_) {
        end(leaves_ ? Status() : request_.status());
        return true;
      }
      if (has_joined_ && job_->call.kind == CallKind::kJoin) server_.has_heard(worker_);
      if (job_->buffer) server_.release(std::move(job_->buffer));
      snapshot_.reset();
      ++number_;
      begin_call();
      return true;
    case State::kOver: return false;
    default: break;
  }
  if (!request_.done()) return false;
  if (!request_.status().ok()) {
    end(request_.status());
  } else if (state_ == State::kCall) {
    take_call();
  } else if (state_ == State::kTable) {
    state_ = State::kBuffer;
  } else if (Status bad = decode_update(); !bad.ok()) {
    end(bad);
  } else {
    serve();
  }
  return true;
}

void Session::take_call() {
  const Call& call = job_->call;
  if (Status bad = check(call, server_.limits()); !bad.ok()) return end(bad);
  if (!has_joined_ && call.kind != CallKind::kJoin) {
    return end({Code::kMismatch, "it calls " + name_of(call.kind) + " before it has joined"});
  }
  state_ = State::kBuffer;
  if (call.ranges == 0) return;
  table_.resize(call.ranges);
  request_.start();
  state_ = State::kTable;
  pair_->recv(Pair::Part::kTable, number_, std::as_writable_bytes(std::span(table_)), &request_);
}

// Finds memory for the body and receives it there. Stays in kBuffer while the server has no memory.
void Session::find_memory() {
  const Call& call = job_->call;
  Bytes into;
  if (call.kind == CallKind::kMap) {
    snapshot_ = make_floats(kMapTextBytes / sizeof(float));
    job_->result = snapshot_.get();
  } else if (call.kind == CallKind::kJoin) {
    text_.resize(call.body_bytes);
    into = std::as_writable_bytes(std::span(text_));
  } else if (call.kind == CallKind::kRestore || call.kind == CallKind::kSnapshot) {
    const size_t count = snapshot_floats(call, server_.state_vectors());
    snapshot_ = make_floats(count);
    job_->update = job_->result = snapshot_.get();
    if (call.kind == CallKind::kRestore) into = std::as_writable_bytes(std::span(snapshot_.get(), count));
  } else if (call.body_bytes > 0) {
    job_->buffer = server_.acquire(*job_);
    if (!job_->buffer) return;
    job_->update = job_->result = job_->buffer.get();
    into = std::as_writable_bytes(std::span(job_->buffer.get(), call.count));
    if (call.codec != 0) into = message();
  }
  if (into.empty()) return serve();
  request_.start();
  state_ = State::kBody;
  pair_->recv(Pair::Part::kBody, number_, into, &request_);
}

// Where an encoded update arrives: behind the numbers that it becomes.
Bytes Session::message() const {
  auto* const begin = reinterpret_cast<std::byte*>(job_->buffer.get() + server_.message_at());
  return {begin, job_->call.body_bytes};
}

Status Session::decode_update() {
  const Call& call = job_->call;
  if (call.codec == 0) return {};
  const Status bad = decode(*server_.coding().push, message(), job_->buffer.get(), call.count);
  if (bad.ok()) return {};
  return {Code::kMismatch, "its update does not decode: " + bad.message()};
}

void Session::serve() {
  if (job_->call.kind == CallKind::kJoin) return join();
  state_ = State::kServing;
  if (job_->call.kind == CallKind::kLeave) {
    leaves_ = true;
    return answer({}, {});
  }
  server_.submit(*job_);
}

void Session::join() {
  const Status refused = server_.admit(worker_, text_);
  has_joined_ = refused.ok();
  answer(refused, {});
}

void Session::answer_done() {
  const Job& job = *job_;
  if (!job.status.ok()) return answer(job.status, {});
  if (job.reply == nullptr) return answer({}, {});
  if (job.call.kind == CallKind::kMap) {
    return answer({}, std::as_bytes(std::span(job.reply, kMapTextBytes / sizeof(float))));
  }
  if (job.call.kind == CallKind::kSnapshot) {
    return answer({}, std::as_bytes(std::span(job.reply, snapshot_floats(job.call, server_.state_vectors()))));
  }
  float* const scratch = job.buffer.get() == job.reply ? job.buffer.get() : nullptr;
  const auto message = values_.make(job.call.shard, job.reply, job.call.count, job.beginning, scratch);
  server_.count_bytes(static_cast<ptrdiff_t>(values_.bytes()) - static_cast<ptrdiff_t>(counted_bytes_));
  counted_bytes_ = values_.bytes();
  job_->answer.codec = number_of(message.codec);
  answer({}, message.bytes);
}

void Session::answer(const Status& status, ConstBytes body) {
  Answer& answer = job_->answer;
  if (!status.ok()) {
    answer.verdict = Verdict::kFailed;
    answer.code = status.code();
    text_ = status.message().substr(0, kMostAnswerTextBytes);
    body = std::as_bytes(std::span(text_));
  }
  answer.body_bytes = body.size();
  state_ = State::kAnswering;
  request_.start();
  pair_->send(Pair::Part::kAnswer, number_, bytes_of_object(std::as_const(answer)), &request_);
  if (body.empty()) return;
  body_request_.start();
  pair_->send(Pair::Part::kAnswerBody, number_, body, &body_request_);
}

void Session::end(const Status& why) {
  state_ = State::kOver;
  if (job_) server_.cancel(*job_);
  if (!why.ok()) {
    pair_->fail(why);
  } else {
    pair_->close();
  }
  if (job_ && job_->buffer) server_.release(std::move(job_->buffer));
  server_.dismiss(worker_, !leaves_);
  if (!has_joined_) server_.has_heard(worker_);  // a refused worker leaves when it has the reason
  if (!why.ok() && has_joined_ && why.code() != Code::kAborted) {
    log(LogLevel::kWarning, "a parameter server goes on without " + worker_text(worker_) + ": " + why.message());
  }
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
#include "parameters/lane.h"

#include <utility>

namespace braid {

CallLane::CallLane(SessionState& session, size_t index)
    : session_(session),
      server_(session.server),
      index_(index),
      values_(session.server.coding().pull, session.worker) {
  begin_call();
}

CallLane::~CallLane() { server_.count_bytes(-static_cast<ptrdiff_t>(counted_bytes_)); }

bool CallLane::poll() {
  bool moved = false;
  while (!is_over() && step()) moved = true;
  return moved;
}

void CallLane::begin_call() {
  job_ = std::make_unique<Job>();
  job_->worker = session_.worker;
  job_->is_remote = true;
  job_->table = &table_;
  request_.start();
  state_ = State::kCall;
  session_.pair->recv(Pair::Part::kCall, number(), bytes_of_object(job_->call), &request_);
}

// One step of the present call. False if it must wait.
bool CallLane::step() {
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
      if (session_.has_joined && job_->call.kind == CallKind::kJoin) server_.has_heard(session_.worker);
      server_.release(*job_);
      ++count_;
      begin_call();
      return true;
    case State::kLeaving:
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

void CallLane::take_call() {
  const Call& call = job_->call;
  if (Status bad = check(call, server_.limits()); !bad.ok()) return end(bad);
  if (lane_of(call) != index_)
    return end({Code::kMismatch, "it sends " + name_of(call.kind) + " in a wrong lane"});
  if (!session_.has_joined && call.kind != CallKind::kJoin) {
    return end({Code::kMismatch, "it calls " + name_of(call.kind) + " before it has joined"});
  }
  if (session_.has_joined && call.kind == CallKind::kJoin) return end({Code::kMismatch, "it joins twice"});
  state_ = State::kBuffer;
  if (call.ranges == 0) return;
  table_.resize(call.ranges);
  request_.start();
  state_ = State::kTable;
  session_.pair->recv(Pair::Part::kTable, number(), std::as_writable_bytes(std::span(table_)), &request_);
}

// Finds memory for the body and receives it there. Stays in kBuffer while the server has no memory.
void CallLane::find_memory() {
  const Call& call = job_->call;
  Bytes into;
  if (call.kind == CallKind::kMap) {
    if (!map_text_) map_text_ = make_floats(kMapTextBytes / sizeof(float));
    job_->result = map_text_.get();
  } else if (call.kind == CallKind::kJoin) {
    text_.resize(call.body_bytes);
    into = std::as_writable_bytes(std::span(text_));
  } else if (has_whole_body(call)) {
    job_->whole = server_.acquire_whole(*job_);
    if (!job_->whole) return;
    job_->update = job_->whole.get();
    into = {reinterpret_cast<std::byte*>(job_->whole.get()), call.body_bytes};
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
  session_.pair->recv(Pair::Part::kBody, number(), into, &request_);
}

// Where an encoded update arrives: behind the numbers that it becomes.
Bytes CallLane::message() const {
  auto* const begin = reinterpret_cast<std::byte*>(job_->buffer.get() + server_.message_at());
  return {begin, job_->call.body_bytes};
}

Status CallLane::decode_update() {
  const Call& call = job_->call;
  if (call.codec == 0) return {};
  const Status bad = decode(*server_.coding().push, message(), job_->buffer.get(), call.count);
  if (bad.ok()) return {};
  return {Code::kMismatch, "its update does not decode: " + bad.message()};
}

void CallLane::serve() {
  if (job_->call.kind == CallKind::kJoin) return join();
  if (job_->call.kind == CallKind::kLeave) {
    state_ = State::kLeaving;
    return;
  }
  state_ = State::kServing;
  server_.submit(*job_);
}

void CallLane::join() {
  const Status refused = server_.admit(session_.worker, text_);
  session_.has_joined = refused.ok();
  answer(refused, {});
}

void CallLane::answer_done() {
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

void CallLane::answer(const Status& status, ConstBytes body) {
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
  session_.pair->send(Pair::Part::kAnswer, number(), bytes_of_object(std::as_const(answer)), &request_);
  if (body.empty()) return;
  body_request_.start();
  session_.pair->send(Pair::Part::kAnswerBody, number(), body, &body_request_);
}

void CallLane::end(const Status& why) {
  state_ = State::kOver;
  why_ = why;
}

void CallLane::let_leave() {
  Status stays;
  if (job_->call.hand_over == HandOver::kYes) stays = server_.farewell(session_.worker, job_->answer.verdict);
  leaves_ = stays.ok() && job_->answer.verdict == Verdict::kDone;
  answer(stays, {});
}

void CallLane::cancel() {
  if (job_) server_.cancel(*job_);
}

void CallLane::give_buffer_back() {
  if (job_) server_.release(*job_);
}

}  // namespace braid

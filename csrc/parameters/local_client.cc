// SPDX-License-Identifier: Apache-2.0
// A worker's end towards the server in its own process. See client.h.
#include <list>
#include <utility>

#include "base/caught.h"
#include "parameters/client.h"

namespace braid {
namespace {

class LocalClient final : public Client {
 public:
  LocalClient(Server& server, int worker, Residuals& residuals)
      : server_(server), worker_(worker), residuals_(residuals) {}
  ~LocalClient() override { fail({Code::kAborted, "the service was closed"}); }

  void start(ClientCall& call) override;
  bool poll() override;
  Status failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }
  void fail(const Status& why) override;
  std::string wire() const override { return "this process"; }
  uint64_t sent_bytes() const override { return 0; }
  uint64_t received_bytes() const override { return 0; }
  void watch() override {}
  size_t open_calls() const override {
    const std::lock_guard lock(mutex_);
    return open_.size();
  }
  size_t kept_bytes() const override { return 0; }

 private:
  struct Open {
    ClientCall* call = nullptr;
    Job job;
    Floats update;  // in place of the call's: with a residual
  };
  void take_residual(Open& open);
  // A push that was not applied.
  void keep(const Open& open);

  Server& server_;
  const int worker_;
  Residuals& residuals_;
  mutable std::mutex mutex_;
  std::list<Open> open_;
  Status failure_;
};

void LocalClient::take_residual(Open& open) {
  Job& job = open.job;
  if (!is_push(job.call.kind)) return;
  open.update = residuals_.take(job.call.shard, job.update, job.call.scale);
  if (!open.update) return;
  job.update = open.update.get();
  job.call.scale = 1;
}

void LocalClient::keep(const Open& open) {
  const Job& job = open.job;
  if (is_push(job.call.kind) && !job.is_applied) {
    residuals_.give_back(job.call.shard, job.update, job.call.scale);
  }
}

void LocalClient::start(ClientCall& call) {
  call.begin();
  const std::lock_guard lock(mutex_);
  if (!failure_.ok()) return call.finish(failure_);
  if (call.call.kind == CallKind::kLeave) {
    server_.dismiss(worker_, false);
    return call.finish({});
  }
  const Status thrown = caught("starting a call", [&] {
    Open& open = open_.emplace_back();
    open.call = &call;
    Job& job = open.job;
    job.worker = worker_;
    job.call = call.call;
    job.table = call.table.get();
    job.update = reinterpret_cast<const float*>(call.body.data());
    job.result = reinterpret_cast<float*>(call.into.data());
    take_residual(open);
    server_.submit(job);
  });
  if (thrown.ok()) return;
  if (!open_.empty() && open_.back().call == &call) {
    server_.cancel(open_.back().job);
    open_.pop_back();
  }
  call.finish(thrown);
}

bool LocalClient::poll() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return false;
  bool moved = false;
  for (auto at = open_.begin(); at != open_.end();) {
    if (!at->job.done.load(std::memory_order_acquire)) {
      ++at;
      continue;
    }
    ClientCall* const call = at->call;
    call->answer = at->job.answer;
    Status outcome = std::move(at->job.status);
    if (!outcome.ok()) keep(*at);
    at = open_.erase(at);
    call->finish(std::move(outcome));
    moved = true;
  }
  return moved;
}

void LocalClient::fail(const Status& why) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = why;
  while (!open_.empty()) {
    ClientCall* const call = open_.front().call;
    server_.cancel(open_.front().job);
    keep(open_.front());
    open_.pop_front();
    call->finish(failure_);
  }
}

}  // namespace

std::unique_ptr<Client> make_client(Server& server, int worker, Residuals& residuals) {
  return std::make_unique<LocalClient>(server, worker, residuals);
}

}  // namespace braid

// SPDX-License-Identifier: Apache-2.0
// One server and the calls of workers that are played by the test's thread.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "parameters/server.h"
#include "parameters/services.h"

namespace braid::testing {

inline constexpr size_t kCount = 4;

// A call, with the memory that its worker keeps.
struct Played {
  Table table{{kCount, with_rate(1)}};
  std::vector<float> update = std::vector<float>(kCount);
  std::vector<float> result = std::vector<float>(kCount);
  Job job;

  bool done() const { return job.done.load(); }
};

// Jobs of workers in other processes. Each is cancelled before its memory goes.
class RemoteJobs {
 public:
  explicit RemoteJobs(Server& server) : server_(server) {}
  ~RemoteJobs() {
    for (const auto& job : jobs_) server_.cancel(*job);
  }
  Job& of(int worker, CallKind kind = CallKind::kPushPull) {
    Job& job = *jobs_.emplace_back(std::make_unique<Job>());
    job.worker = worker;
    job.is_remote = true;
    job.call.kind = kind;
    job.call.count = kCount;
    return job;
  }

 private:
  Server& server_;
  std::vector<std::unique_ptr<Job>> jobs_;
};

class OneServer : public ::testing::Test {
 protected:
  void make(Mode mode, int workers, int staleness = 0, int buffers = 4, Quorum quorum = {}) {
    ServerOptions options;
    options.quorum = quorum;
    options.rule = rule_from_text("sgd").value();
    options.mode = mode;
    options.staleness = staleness;
    options.buffers = buffers;
    make(options, workers);
  }
  void make(ServerOptions options, int workers) {
    options.settings = "same";
    server_ = std::make_unique<Server>(options, std::vector<Extent>{{0, kCount}}, bell_);
    for (int worker = 0; worker < workers; ++worker) ASSERT_TRUE(server_->admit(worker, "same").ok());
  }
  // `more` sets what else the call says.
  Played& call_with(int worker, CallKind kind, float update, const std::function<void(Call&)>& more) {
    Played& played = *played_.emplace_back(std::make_unique<Played>());
    played.update.assign(kCount, update);
    played.job.worker = worker;
    played.job.call.kind = kind;
    played.job.call.count = kCount;
    more(played.job.call);
    played.job.table = &played.table;
    played.job.update = played.update.data();
    played.job.result = played.result.data();
    server_->submit(played.job);
    return played;
  }
  Played& call(int worker, CallKind kind, float update = 0, uint64_t base = 0, float scale = 1) {
    return call_with(worker, kind, update, [&](Call& call) {
      call.base = base;
      call.scale = scale;
    });
  }
  void install(float value) { ASSERT_TRUE(call(0, CallKind::kInstall, value).done()); }
  float value(int worker = 0) { return call(worker, CallKind::kPull).result[0]; }
  void TearDown() override {
    if (server_) server_->close({Code::kAborted, "over"});
  }

  DoorbellWord bell_;
  std::vector<std::unique_ptr<Played>> played_;
  std::unique_ptr<Server> server_;
};

}  // namespace braid::testing

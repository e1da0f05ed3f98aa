// SPDX-License-Identifier: Apache-2.0
// A worker's end towards a server of its own host, with relaxed consistency. It asks for a map of each shard once. From
// then on it pushes and pulls by itself, on the calling thread. All other calls, and all calls before, are messages.
#include <array>
#include <map>
#include <utility>

#include "base/log.h"
#include "parameters/client.h"
#include "parameters/rows.h"

namespace braid {
namespace {

class MappedClient final : public Client {
 public:
  MappedClient(std::unique_ptr<Client> messages, std::vector<Extent> extents, const ShardRule& rule,
               Residuals& residuals)
      : extents_(std::move(extents)), rule_(rule), residuals_(residuals), messages_(std::move(messages)) {
    messages_->watch();  // who sends no messages would not hear that the server has died
  }

  void start(ClientCall& call) override;
  bool poll() override { return messages_->poll(); }
  Status failure() const override { return messages_->failure(); }
  void fail(const Status& why) override { messages_->fail(why); }
  std::string wire() const override;
  uint64_t sent_bytes() const override { return messages_->sent_bytes(); }
  uint64_t received_bytes() const override { return messages_->received_bytes(); }
  size_t kept_bytes() const override { return messages_->kept_bytes(); }
  void watch() override {}
  size_t open_calls() const override { return messages_->open_calls(); }

 private:
  struct Map {
    ClientCall call;  // that asks for it
    std::array<char, kMapTextBytes + 1> text{};
    bool is_asked = false;
    bool is_read = false;
    std::shared_ptr<MappedShard> shard;
  };

  // The shard, if this call can go without a message.
  std::shared_ptr<MappedShard> shard_for(const ClientCall& call);
  void read(uint16_t shard, Map& map) const;
  void push(ClientCall& call, MappedShard& shard);

  const std::vector<Extent> extents_;
  const ShardRule rule_;
  Residuals& residuals_;
  mutable std::mutex mutex_;
  std::map<uint16_t, Map> maps_;
  const std::unique_ptr<Client> messages_;  // after the maps, whose calls it holds
};

void MappedClient::start(ClientCall& call) {
  const auto shard = shard_for(call);
  if (!shard) return messages_->start(call);
  call.begin();
  call.answer = {};
  if (is_push(call.call.kind)) return push(call, *shard);
  call.answer.shard_version = shard->read(reinterpret_cast<float*>(call.into.data()));
  call.finish({});
}

void MappedClient::push(ClientCall& call, MappedShard& shard) {
  Update update;
  update.update = reinterpret_cast<const float*>(call.body.data());
  update.scale = call.call.scale;
  update.base = call.call.base;
  update.table = *call.table;
  if (!call.into.empty()) update.result = reinterpret_cast<float*>(call.into.data());
  const Floats whole = residuals_.take(call.call.shard, update.update, update.scale);
  if (whole) {
    update.update = whole.get();
    update.scale = 1;
  }
  const auto applied = shard.apply(update);
  if (!applied.ok()) {
    residuals_.give_back(call.call.shard, update.update, update.scale);
    return call.finish(applied.status());
  }
  call.answer.staleness = applied.value().staleness;
  call.answer.shard_version = applied.value().version;
  call.finish({});
}

// Calls must take effect in order: messages that are under way come first.
std::shared_ptr<MappedShard> MappedClient::shard_for(const ClientCall& call) {
  const bool can_map = is_push(call.call.kind) || call.call.kind == CallKind::kPull;
  if (!can_map) return nullptr;
  const std::lock_guard lock(mutex_);
  if (!messages_->failure().ok()) {
    for (auto& [shard, map] : maps_) map.shard.reset();
    return nullptr;
  }
  Map& map = maps_[call.call.shard];
  if (!map.is_asked) {
    map.is_asked = true;
    map.call.call.kind = CallKind::kMap;
    map.call.call.shard = call.call.shard;
    map.call.call.count = call.call.count;
    map.call.into = std::as_writable_bytes(std::span(map.text).first<kMapTextBytes>());
    map.call.deadline = call.deadline;
    messages_->start(map.call);
  }
  if (!map.call.is_over()) return nullptr;
  if (!map.is_read) read(call.call.shard, map);
  if (!map.shard || map.shard->is_given_up() || messages_->open_calls() > 0) return nullptr;
  return map.shard;
}

void MappedClient::read(uint16_t shard, Map& map) const {
  map.is_read = true;
  Status bad = map.call.status;
  if (bad.ok()) {
    const Extent& extent = extents_[shard];
    auto mapped = MappedShard::attach(map.text.data(), extent.begin, extent.count, rule_);
    bad = mapped.status();
    if (mapped.ok()) map.shard = std::move(mapped).value();
  }
  if (bad.ok()) return;
  log(LogLevel::kWarning,
      "shard " + std::to_string(shard) + " is reached by messages, not in mapped memory: " + bad.message());
}

std::string MappedClient::wire() const {
  const std::lock_guard lock(mutex_);
  for (const auto& [shard, map] : maps_) {
    if (map.shard && !map.shard->is_given_up()) return "mapped memory";
  }
  return messages_->wire();
}

}  // namespace

std::unique_ptr<Client> make_mapped_client(std::unique_ptr<Client> messages, std::vector<Extent> extents,
                                           const ShardRule& rule, Residuals& residuals) {
  return std::make_unique<MappedClient>(std::move(messages), std::move(extents), rule, residuals);
}

}  // namespace braid

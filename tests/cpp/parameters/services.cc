// SPDX-License-Identifier: Apache-2.0
#include "parameters/services.h"

#include <random>
#include <utility>

#include "support/slowness.h"

namespace braid::testing {

ServiceSetup setup_of(const Place& place, size_t elements, const std::string& rule) {
  ServiceSetup setup;
  setup.name = "test";
  setup.member = place.rank;
  setup.workers = place.ranks;
  for (int member = 0; member < place.ranks; ++member) setup.servers.push_back(member);
  setup.elements = elements;
  setup.server.rule = rule_from_text(rule).value();
  setup.options = place.options;
  setup.store = setup.door_store = place.store;
  setup.engine = place.engine;
  return setup;
}

std::unique_ptr<ParameterService> must_create(ServiceSetup setup) {
  auto service = ParameterService::create(std::move(setup));
  EXPECT_TRUE(service.ok()) << service.status().message();
  return service.ok() ? std::move(service).value() : nullptr;
}

void on_all_members(int members, const Options& options, const std::function<ServiceSetup(const Place&)>& setup,
                    const std::function<void(const Place&, ParameterService&)>& body) {
  at_all_places(members, options, [&](const Place& place) {
    const auto service = must_create(setup(place));
    if (!service) return;
    body(place, *service);
    // One that only serves waits here for all the work of the others.
    service->close(limit(milliseconds(60'000)), {});
  });
}

Status outcome(ParameterService& service, const ParameterService::Request& request) {
  if (service.wait(*request, Clock::now() + limit(milliseconds(30'000)), {}) != Waited::kDone) {
    return {Code::kTimeout, "the request is not done"};
  }
  return request->status();
}

std::vector<std::string> codec_texts() {
  std::vector<std::string> texts;
  for (int kind = 0; kind < kCodecKindCount; ++kind) {
    const auto of_kind = static_cast<CodecKind>(kind);
    texts.push_back(to_text(Codec{of_kind, traits(of_kind).is_sparse ? 4u : 0u}));
  }
  return texts;
}

std::string codec_test_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param.substr(0, info.param.find(':'));
}

std::vector<float> noise(size_t count, int seed) {
  std::mt19937 random(static_cast<uint32_t>(seed));
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(random()) * 0x1p-31f - 1;
  return values;
}

RuleNumbers with_rate(double rate) {
  RuleNumbers numbers;
  numbers.rate = rate;
  return numbers;
}

Table table_of(size_t elements, double rate) { return {{elements, with_rate(rate)}}; }

ServiceSetup setup_alone(const Place& place, size_t elements, int workers, int servers, Mode mode) {
  ServiceSetup setup = setup_of(place, elements, "sgd:momentum");
  setup.workers = workers;
  if (place.rank >= workers) setup.member = kFirstAlone + place.rank - workers;
  setup.servers.clear();
  for (int i = 0; i < servers; ++i) setup.servers.push_back(kFirstAlone + i);
  setup.server.mode = mode;
  setup.server.staleness = 2;
  return setup;
}

Table momentum_table(size_t elements, bool has_momentum) {
  RuleNumbers row = with_rate(0.125);
  if (has_momentum) row.momentum = 0.5;
  return {{elements, row}};
}

float after_momentum(int updates) {
  float value = 0;
  float momentum = 0;
  for (int i = 0; i < updates; ++i) {
    momentum = 0.5f * momentum + 1.0f;
    value -= 0.125f * momentum;
  }
  return value;
}

}  // namespace braid::testing

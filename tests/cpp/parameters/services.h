// SPDX-License-Identifier: Apache-2.0
// Members of a parameter service as threads of one process.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "communicator/ranks.h"
#include "parameters/service.h"

namespace braid::testing {

// A service in which every place is a worker and a server, for `elements` numbers and plain SGD.
ServiceSetup setup_of(const Place& place, size_t elements, const std::string& rule = "sgd");

// Ends with the test's failure if the service can not be made.
std::unique_ptr<ParameterService> must_create(ServiceSetup setup);

// Runs body on one thread per member, each with its service; the services close in good order.
void on_all_members(int members, const Options& options, const std::function<ServiceSetup(const Place&)>& setup,
                    const std::function<void(const Place&, ParameterService&)>& body);

// Waits for a request; its outcome, or kTimeout after half a minute.
Status outcome(ParameterService& service, const ParameterService::Request& request);

// A text of every codec.
std::vector<std::string> codec_texts();
std::string codec_test_name(const ::testing::TestParamInfo<std::string>& info);
// Numbers of magnitude 1 that depend on the seed.
std::vector<float> noise(size_t count, int seed);

RuleNumbers with_rate(double rate);
// A table with the same numbers for all elements.
Table table_of(size_t elements, double rate);

// The servers are processes without a worker, at the places after the workers'. SGD with momentum.
ServiceSetup setup_alone(const Place& place, size_t elements, int workers, int servers, Mode mode);
// The rate 0.125 and, if the rule has it, the momentum 0.5.
Table momentum_table(size_t elements, bool has_momentum = true);
// What 0 has become by so many updates of 1 with that table.
float after_momentum(int updates);

}  // namespace braid::testing

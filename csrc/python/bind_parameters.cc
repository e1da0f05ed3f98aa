// SPDX-License-Identifier: Apache-2.0
// The parameter service for Python. Arguments are checked in braid.strategies and braid.Parameters; what is checked here
// keeps memory safe.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "interpreter/interrupts.h"
#include "interpreter/without_gil.h"
#include "parameters/service.h"
#include "python/array_communicator.h"
#include "python/array_memory.h"
#include "python/bind.h"
#include "python/kept_arrays.h"
#include "python/python_store.h"
#include "python/rule_numbers.h"

namespace braid {
namespace {

using Owner = ParameterService::Owner;
using Numbers = std::vector<std::pair<uint64_t, py::dict>>;

constexpr double kLongestSeconds = 1e9;

milliseconds milliseconds_of(double seconds) {
  return milliseconds(static_cast<int64_t>(std::ceil(std::min(seconds, kLongestSeconds) * 1000)));
}

// A request under way.
class HeldRequest {
 public:
  HeldRequest(std::shared_ptr<ParameterService> service, ParameterService::Request request)
      : service_(std::move(service)), request_(std::move(request)) {}
  // Whoever drops the request may use its arrays again.
  ~HeldRequest() {
    if (made_under_ != fork_count()) {
      abandon(std::move(service_));
      return;
    }
    const WithoutGil without_gil;  // the service may end here, and its threads may want the GIL
    if (!request_->done()) static_cast<void>(service_->wait(*request_, request_->due(), {}));
    service_.reset();
  }
  HeldRequest(const HeldRequest&) = delete;
  HeldRequest& operator=(const HeldRequest&) = delete;

  bool done() const { return request_->done(); }
  void wait(std::optional<double> timeout_s) {
    Interrupts interrupts;
    if (!request_->done()) {
      const WithoutGil without_gil;
      const Deadline deadline = timeout_s ? deadline_after(milliseconds_of(*timeout_s)) : request_->due();
      static_cast<void>(service_->wait(*request_, deadline, interrupts.give_up()));
    }
    if (interrupts.restore()) throw py::error_already_set();
    if (!request_->done()) raise({Code::kTimeout, service_->unanswered(*request_)});
    raise_if_failed(request_->status());
  }
  const ParameterRequest& finished() const {
    if (!request_->done()) throw py::value_error("the request is not done; call wait() first");
    return *request_;
  }
  const ParameterRequest* get() const { return request_.get(); }

 private:
  const int made_under_ = fork_count();
  std::shared_ptr<ParameterService> service_;
  ParameterService::Request request_;
};

class PythonService {
 public:
  PythonService(std::shared_ptr<ParameterService> service, bool installs)
      : installs_(installs), service_(std::move(service)) {}
  ~PythonService() { close(0, ""); }
  PythonService(const PythonService&) = delete;
  PythonService& operator=(const PythonService&) = delete;

  void close(double limit_s, const std::string& why) {
    auto service = std::move(service_);
    if (!service) return;
    if (made_under_ != fork_count()) return abandon(std::move(service));
    {
      const WithoutGil without_gil;
      Interrupts interrupts;
      service->close(milliseconds_of(limit_s), interrupts.give_up(), why);
      service.reset();
    }
    let_dropped_arrays_go();
  }

  // Puts worker 0's values into `out`, once they have come. `initial` of other workers is ignored. Returns the request
  // that brought them, which is done.
  std::unique_ptr<HeldRequest> start(const py::array& initial, const py::array& out) {
    const float* values = vector_of(initial, false);
    static_cast<void>(vector_of(out, true));  // before anything is installed
    if (installs_) {
      started({initial}, [&](ParameterService& running, Owner owner) {
        return running.install(values, std::move(owner));
      })->wait(std::nullopt);
    }
    auto first = pull(out);
    first->wait(std::nullopt);
    return first;
  }

  std::unique_ptr<HeldRequest> push_pull(const py::array& update, const std::optional<py::array>& out,
                                         const Numbers& numbers, float scale, const py::object& based_on,
                                         std::optional<uint64_t> round) {
    const float* from = vector_of(update, false);
    float* into = out ? vector_of(*out, true) : nullptr;
    const ParameterRequest* base = based_on.is_none() ? nullptr : py::cast<HeldRequest&>(based_on).get();
    Table table = table_of(numbers);
    const py::object result = out ? py::object(*out) : py::none();
    return started({update, result}, [&](ParameterService& running, Owner owner) {
      return running.push(from, into, std::move(table), scale, base, round, std::move(owner));
    });
  }

  std::unique_ptr<HeldRequest> pull(const py::array& out) {
    float* into = vector_of(out, true);
    return started({out},
                   [&](ParameterService& running, Owner owner) { return running.pull(into, std::move(owner)); });
  }

  std::unique_ptr<HeldRequest> rest() {
    return started({}, [](ParameterService& running, const Owner&) { return running.rest(); });
  }

  std::unique_ptr<HeldRequest> look() {
    return started({}, [](ParameterService& running, const Owner&) { return running.look(); });
  }

  py::dict snapshot() {
    const auto elements = static_cast<py::ssize_t>(service().elements());
    const py::ssize_t vectors = 1 + service().state_vectors();
    py::array_t<float> saved(elements * vectors);
    float* const into = saved.mutable_data();
    const auto request = started(
        {saved}, [&](ParameterService& running, Owner owner) { return running.snapshot(into, std::move(owner)); });
    request->wait(std::nullopt);
    py::dict result;
    result["numbers"] = saved;
    result["vectors"] = vectors;
    result["steps"] = request->finished().steps();
    result["versions"] = request->finished().versions();
    return result;
  }

  // Of each shard: the end of its part of the vector.
  std::vector<size_t> ends() const {
    std::vector<size_t> ends;
    for (const Extent& extent : service().extents()) ends.push_back(extent.begin + extent.count);
    return ends;
  }

  void restore(const py::array& saved, const std::vector<uint64_t>& steps, const std::vector<uint64_t>& versions) {
    const auto expected = static_cast<py::ssize_t>(service().elements()) * (1 + service().state_vectors());
    const auto floats = floats_of(saved, false);
    if (floats.size() != static_cast<size_t>(expected)) {
      throw py::value_error("a snapshot of this service has " + std::to_string(expected) + " numbers, not " +
                            std::to_string(floats.size()));
    }
    started({saved}, [&](ParameterService& running, Owner owner) {
      return running.restore(floats.data(), steps, versions, std::move(owner));
    })->wait(std::nullopt);
  }

  py::dict stats() const {
    const ParameterService::Stats all = service().stats();
    py::dict stats;
    stats["versions"] = all.server.versions;
    stats["staleness"] = all.server.staleness;
    stats["updates"] = all.server.updates;
    stats["copied"] = all.server.copied;
    stats["calls"] = all.server.calls;
    stats["died"] = all.server.died;
    stats["bytes"] = all.server.bytes + all.worker_bytes;
    stats["workers"] = all.workers;
    stats["wires"] = all.wires;
    stats["sent_bytes"] = all.sent_bytes;
    stats["received_bytes"] = all.received_bytes;
    stats["homes"] = all.homes;
    stats["lost_parts"] = all.lost_parts;
    stats["lost_members"] = all.lost_members;
    return stats;
  }

  ParameterService& service() const {
    if (made_under_ != fork_count()) {
      raise({Code::kAborted, "this parameter service was made before the process was forked; make a new one"});
    }
    if (!service_) raise({Code::kAborted, "this parameter service is closed"});
    return *service_;
  }

 private:
  float* vector_of(const py::array& array, bool writable) const {
    const auto floats = floats_of(array, writable);
    if (floats.size() == service().elements()) return floats.data();
    throw py::value_error("expected " + std::to_string(service().elements()) + " numbers, got " +
                          std::to_string(floats.size()));
  }
  // Starts a request. The service keeps its arrays for as long as it may use them.
  // To start one may take as long as to encode the update, or to add it to a mapped shard. Meanwhile another thread may
  // close this: the request keeps the service that it was started at.
  template <class Start>
  std::unique_ptr<HeldRequest> started(std::vector<py::object> arrays, const Start& start) const {
    ParameterService& running = service();
    std::shared_ptr<ParameterService> kept = service_;
    Owner owner = keep_arrays(std::move(arrays));
    ParameterService::Request request;
    {
      const WithoutGil without_gil;
      request = start(running, std::move(owner));
    }
    return std::make_unique<HeldRequest>(std::move(kept), std::move(request));
  }
  static Table table_of(const Numbers& numbers) {
    Table table;
    for (const auto& [end, given] : numbers) table.push_back({end, rule_numbers_of(given)});
    return table;
  }

  const int made_under_ = fork_count();
  const bool installs_;  // the servers begin with this worker's values
  std::shared_ptr<ParameterService> service_;
};

template <class T>
T value_of(Result<T> result) {
  raise_if_failed(result.status());
  return std::move(result).value();
}

std::pair<uint64_t, uint64_t> needs_of_server(size_t elements, size_t servers, double share, size_t workers,
                                              const std::string& rule, const std::string& mode,
                                              const std::string& push_codec, const std::string& pull_codec,
                                              int replicas) {
  if (servers == 0) throw py::value_error("there must be a server");
  ServerOptions options;
  options.rule = value_of(rule_from_text(rule));
  options.mode = value_of(mode_from_text(mode));
  options.coding = {value_of(codec_option(push_codec)), value_of(codec_option(pull_codec))};
  options.replicas = replicas;
  const ServerNeeds needs = needs_of(options, elements, servers, share, workers);
  return {needs.whatever_it_holds, needs.in_all};
}

std::unique_ptr<PythonService> make_service(
    py::object store, py::object door_store, const std::string& name, int member, int workers,
    const std::vector<int>& servers, size_t elements, const std::optional<std::vector<double>>& shares,
    const std::string& rule, const std::string& settings, const std::string& mode, int staleness,
    bool staleness_rate, double timeout_s, bool late, const std::string& reach, const std::string& push_codec,
    const std::string& pull_codec, const std::string& consistency, int replicas,
    std::optional<uint64_t> newcomer_takes, const std::string& who,
    const std::optional<std::shared_ptr<MemoryBudget>>& memory, uint64_t promised_bytes) {
  ServiceSetup setup;
  setup.name = name;
  setup.member = member;
  setup.workers = workers;
  setup.servers = servers;
  setup.elements = elements;
  if (shares) setup.shares = *shares;
  setup.server.rule = value_of(rule_from_text(rule));
  setup.server.mode = value_of(mode_from_text(mode));
  if (setup.server.mode == Mode::kQuorum) setup.server.quorum = value_of(quorum_from_text(mode));
  setup.server.consistency = value_of(consistency_from_text(consistency));
  setup.server.replicas = replicas;
  setup.server.staleness = staleness;
  setup.server.divides_by_staleness = staleness_rate;
  setup.server.settings = settings;
  setup.server.coding = {value_of(codec_option(push_codec)), value_of(codec_option(pull_codec))};
  setup.is_late = late;
  setup.newcomer_takes = newcomer_takes;
  setup.who = who;
  setup.server.budget = memory.value_or(nullptr);
  setup.server.promised_bytes = promised_bytes;
  setup.options = value_of(options_from_env());
  setup.options.timeout = milliseconds_of(timeout_s);
  if (!reach.empty()) setup.options.reach = reach;
  const auto member_store = std::make_shared<PythonStore>(std::move(store));
  setup.store = member_store;
  setup.door_store = std::make_shared<PythonStore>(std::move(door_store));
  Interrupts interrupts;
  auto service = [&] {
    const WithoutGil without_gil;
    return ParameterService::create(std::move(setup), interrupts.give_up());
  }();
  if (!service.ok() && interrupts.restore()) throw py::error_already_set();
  if (!service.ok()) member_store->raise_what_was_caught();
  raise_if_failed(service.status());
  return std::make_unique<PythonService>(std::move(service).value(), member == 0 && !late && !newcomer_takes);
}

}  // namespace

void bind_parameters(py::module_& m) {
  py::class_<MemoryBudget, std::shared_ptr<MemoryBudget>>(m, "MemoryBudget")
      .def(py::init<uint64_t>(), py::arg("bytes"))
      .def("take", &MemoryBudget::take, py::arg("bytes"))
      .def("give_back", &MemoryBudget::give_back, py::arg("bytes"))
      .def("left", &MemoryBudget::left);
  m.def("parameter_server_needs", &needs_of_server, py::kw_only(), py::arg("elements"), py::arg("servers"),
        py::arg("share") = 0.0, py::arg("workers"), py::arg("rule"), py::arg("mode") = "async",
        py::arg("push_codec") = "", py::arg("pull_codec") = "", py::arg("replicas") = 0,
        "The bytes of memory that a parameter server needs: whatever it holds, and in all with its part.");

  py::class_<HeldRequest>(m, "ParameterRequest")
      .def("done", &HeldRequest::done)
      .def("wait", &HeldRequest::wait, py::arg("timeout_s") = py::none())
      .def_property_readonly("staleness", [](const HeldRequest& self) { return self.finished().staleness(); })
      .def_property_readonly("versions", [](const HeldRequest& self) { return self.finished().versions(); })
      .def_property_readonly("lost_parts", [](const HeldRequest& self) { return self.finished().lost_parts(); });

  py::class_<PythonService>(m, "ParameterService")
      .def(py::init(&make_service), py::arg("store"), py::arg("door_store"), py::arg("name"), py::kw_only(),
           py::arg("member"), py::arg("workers"), py::arg("servers"), py::arg("elements"),
           py::arg("shares") = py::none(), py::arg("rule"), py::arg("settings") = "", py::arg("mode") = "async",
           py::arg("staleness") = 0, py::arg("staleness_rate") = false, py::arg("timeout_s") = 1800.0,
           py::arg("late") = false, py::arg("reach") = "", py::arg("push_codec") = "", py::arg("pull_codec") = "",
           py::arg("consistency") = "atomic", py::arg("replicas") = 0, py::arg("newcomer_takes") = py::none(),
           py::arg("who") = "", py::arg("memory") = py::none(), py::arg("promised_bytes") = 0)
      .def("start", &PythonService::start, py::arg("initial"), py::arg("out"))
      .def("push_pull", &PythonService::push_pull, py::arg("update"), py::arg("out").none(true),
           py::arg("numbers"), py::arg("scale") = 1.0f, py::arg("based_on") = py::none(),
           py::arg("round") = py::none())
      .def("pull", &PythonService::pull, py::arg("out"))
      .def("rest", &PythonService::rest)
      .def("look", &PythonService::look)
      .def("snapshot", &PythonService::snapshot)
      .def("ends", &PythonService::ends)
      .def("restore", &PythonService::restore, py::arg("numbers"), py::arg("steps"),
           py::arg("versions") = std::vector<uint64_t>())
      .def("stats", &PythonService::stats)
      .def("leave", [](const PythonService& self) { self.service().leave(); })
      .def("is_leaving", [](const PythonService& self) { return self.service().is_leaving(); })
      .def("failure",
           [](const PythonService& self) -> std::optional<std::string> {
             const Status failure = self.service().failure();
             if (failure.ok()) return std::nullopt;
             return failure.message();
           })
      .def("close", &PythonService::close, py::arg("limit_s") = 60.0, py::arg("why") = "");
}

}  // namespace braid

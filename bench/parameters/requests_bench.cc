// SPDX-License-Identifier: Apache-2.0
// Requests of 64 bytes to a parameter server, without Python: one round trip, and sixteen under way. Then the same
// while another pair of the server's process exchanges 4 MiB without a pause. Server and workers are processes.
//
//   requests_bench SECONDS     prints a line of JSON for each measurement
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "parameters/service.h"

namespace braid {
namespace {

constexpr size_t kSmall = 64 / sizeof(float);
constexpr size_t kLarge = (4 << 20) / sizeof(float);
constexpr double kWarmUp = 0.2;  // of the requests
constexpr milliseconds kLimit{60'000};

void require(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "requests_bench: %s\n", status.message().c_str());
  std::_Exit(1);
}

// Where the processes meet: a file per key.
class FolderStore : public Store {
 public:
  explicit FolderStore(std::filesystem::path folder) : folder_(std::move(folder)) {}

  Status set(const std::string& key, const std::string& value) override {
    const std::filesystem::path written = file_of(key + "." + std::to_string(::getpid()));
    std::ofstream(written, std::ios::binary) << value;
    std::filesystem::rename(written, file_of(key));
    return {};
  }
  Result<std::string> get(const std::string& key, milliseconds timeout) override {
    const Deadline deadline = deadline_after(timeout);
    do {
      std::ifstream file(file_of(key), std::ios::binary);
      if (file) return std::string(std::istreambuf_iterator<char>(file), {});
      std::this_thread::sleep_for(milliseconds(1));
    } while (Clock::now() < deadline);
    return Status(Code::kTimeout, "no key " + key);
  }

 private:
  std::filesystem::path file_of(std::string key) const {
    std::replace(key.begin(), key.end(), '/', '_');
    return folder_ / key;
  }
  const std::filesystem::path folder_;
};

// A service of one worker, member 0, and one server, member 1.
std::unique_ptr<ParameterService> join(const std::string& folder, const std::string& wire, const std::string& name,
                                       size_t elements, int member) {
  ServiceSetup setup;
  setup.name = name;
  setup.member = member;
  setup.workers = 1;
  setup.servers = {1};
  setup.elements = elements;
  auto rule = rule_from_text("sgd");
  require(rule.status());
  setup.server.rule = rule.value();
  setup.options.transports = wire;
  setup.options.interface = "127.0.0.1";
  setup.options.timeout = kLimit;
  setup.store = setup.door_store = std::make_shared<FolderStore>(folder);
  auto made = ParameterService::create(std::move(setup));
  require(made.status());
  return std::move(made).value();
}

struct Trips {
  std::vector<double> us;  // of each batch of requests
  double requests_per_s = 0;
};

Trips train(ParameterService& service, size_t window, double seconds) {
  const size_t elements = service.elements();
  std::vector<std::vector<float>> values(window + 1, std::vector<float>(elements));
  const std::vector<float> update(elements, 1.0f);
  RuleNumbers numbers;
  numbers.rate = 1e-3;
  const Table table = {{elements, numbers}};
  const auto wait = [&](const ParameterService::Request& request) {
    if (service.wait(*request, deadline_after(kLimit), {}) != Waited::kDone) require({Code::kTimeout, "late"});
    require(request->status());
  };
  wait(service.install(values[0].data()));
  Trips trips;
  std::vector<ParameterService::Request> open(window);
  const auto begun = Clock::now();
  const Deadline end = begun + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  for (auto now = begun; now < end;) {
    for (size_t i = 0; i < window; ++i) {
      open[i] = service.push(update.data(), values[i].data(), table, 1, nullptr);
    }
    for (const auto& request : open) wait(request);
    const auto done = Clock::now();
    trips.us.push_back(std::chrono::duration<double, std::micro>(done - now).count());
    now = done;
  }
  trips.us.erase(trips.us.begin(), trips.us.begin() + static_cast<std::ptrdiff_t>(kWarmUp * trips.us.size()));
  double sum_us = 0;
  for (const double each : trips.us) sum_us += each;
  trips.requests_per_s = static_cast<double>(window * trips.us.size()) / sum_us * 1e6;
  std::sort(trips.us.begin(), trips.us.end());
  return trips;
}

pid_t start(const std::function<void()>& body) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child != 0) return child;
  body();
  std::fflush(nullptr);
  std::_Exit(0);
}

void measure(const std::string& wire, size_t window, bool beside_large, double seconds) {
  std::string folder = (std::filesystem::temp_directory_path() / "braid_requests_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) require({Code::kAborted, "no folder for the processes to meet"});
  std::vector<pid_t> children;
  children.push_back(start([&] {  // the server of both
    std::unique_ptr<ParameterService> large;
    std::thread other([&] {
      if (beside_large) large = join(folder, wire, "large", kLarge, 1);
    });
    const auto small = join(folder, wire, "small", kSmall, 1);
    other.join();
    small->close(kLimit, {});
    if (large) large->close(kLimit, {});
  }));
  if (beside_large) {
    children.push_back(start([&] {
      const auto service = join(folder, wire, "large", kLarge, 0);
      train(*service, 1, seconds * 1.3);
      service->close(milliseconds(0), {});
    }));
  }
  children.push_back(start([&] {
    const auto service = join(folder, wire, "small", kSmall, 0);
    if (beside_large) std::this_thread::sleep_for(milliseconds(100));  // until the large exchange has begun
    const Trips trips = train(*service, window, seconds);
    std::printf(
        "{\"wire\": \"%s\", \"window\": %zu, \"beside_large\": %s, \"median_us\": %.3f, \"p99_us\": %.3f, "
        "\"requests_per_s\": %.0f}\n",
        wire.c_str(), window, beside_large ? "true" : "false", trips.us[trips.us.size() / 2],
        trips.us[trips.us.size() * 99 / 100], trips.requests_per_s);
    service->close(milliseconds(0), {});
  }));
  bool is_good = true;
  for (const pid_t child : children) {
    int code = 0;
    ::waitpid(child, &code, 0);
    is_good &= code == 0;
  }
  std::filesystem::remove_all(folder);
  if (!is_good) std::exit(1);
}

}  // namespace
}  // namespace braid

int main(int count, char** arguments) {
  const double seconds = count > 1 ? std::atof(arguments[1]) : 2;
  for (const std::string wire : {"shm", "tcp"}) {
    for (const bool beside_large : {false, true}) {
      for (const size_t window : {size_t{1}, size_t{16}}) braid::measure(wire, window, beside_large, seconds);
    }
  }
}

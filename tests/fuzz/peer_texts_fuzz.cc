// SPDX-License-Identifier: Apache-2.0
// What ranks and aggregators read of each other: endpoints, addresses, orders, appointments, reasons. Whatever the bytes are,
// each reader accepts or refuses; and what it accepts comes back the same from its own text.
//
//   byte 0    which reader
//   the rest  what it reads
#include <array>
#include <cstring>
#include <map>

#include "aggregator/aggregated_all_reduce.h"
#include "aggregator/registry.h"
#include "base/random.h"
#include "codec/lossy.h"
#include "fuzz/targets.h"
#include "rendezvous/cores.h"
#include "rendezvous/endpoint.h"
#include "rendezvous/endpoint_exchange.h"
#include "topology/topology.h"
#include "transport/frame.h"
#include "transport/shm/group_endpoint.h"
#include "transport/tcp/address.h"

namespace braid::fuzz {
namespace {

void read_endpoint(const std::string& text) {
  const auto endpoint = endpoint_from_text(text);
  if (!endpoint.ok())
    return require(endpoint.status().code() == Code::kMismatch, "a refused endpoint is a mismatch");
  const auto again = endpoint_from_text(to_text(endpoint.value()));
  require(again.ok() && again.value() == endpoint.value(), "an endpoint comes back the same");
}

void read_group_endpoint(const std::string& text) {
  const auto endpoint = shm::GroupEndpoint::parse(text);
  if (!endpoint.ok()) return require(endpoint.status().code() == Code::kInvalidArgument, "an invalid argument");
  require(endpoint.value().text() == text, "only what text() writes is read as a group's endpoint: " + text);
  require(endpoint.value().rank >= 0 && endpoint.value().rank < endpoint.value().ranks,
          "the rank is one of the group");
}

void read_address(const std::string& text) {
  const auto address = Address::parse(text);
  if (!address.ok()) return require(address.status().code() == Code::kInvalidArgument, "an invalid argument");
  const std::string written = address.value().text();
  const auto again = Address::parse(written);
  require(again.ok() && again.value().text() == written, "an address comes back the same: " + written);
  const std::string port = text.substr(text.rfind(':') + 1);
  require(written.ends_with(":" + std::to_string(std::stoul(port))) &&
              port.find_first_not_of("0123456789") == std::string::npos,
          "the port is the number that stands there: " + text + " became " + written);
  (void)address.value().is_loopback();
  (void)address.value().is_link_local();
}

void read_order(const std::string& text) {
  std::array<std::byte, kOrderBytes> bytes{};
  std::memcpy(bytes.data(), text.data(), std::min(text.size(), bytes.size()));
  const auto order = order_from_bytes(bytes);
  if (!order) return;
  const auto again = order_from_bytes(to_bytes(*order));
  require(again && again->kind == order->kind && again->dtype == order->dtype && again->op == order->op &&
              again->bytes == order->bytes && again->timeout_ms == order->timeout_ms,
          "an order comes back the same");
}

void read_appointment(const std::string& text) {
  const auto place = appointment_from_text(text);
  if (!place) return;
  require(place->index >= 0 && place->index < place->aggregators && place->ranks > 0, "the place exists");
  const auto again = appointment_from_text(to_text(*place));
  require(again && *again == *place, "an appointment comes back the same");
}

void read_reason(const std::string& text) {
  const Status reason = unpack_status(text);
  require(!reason.ok(), "a reason is never good news");
  const Status again = unpack_status(pack_status(reason));
  require(again.code() == reason.code() && again.rank() == reason.rank() && again.message() == reason.message(),
          "a reason comes back the same");
}

void read_signature(const std::string& text) {
  Signature signature;
  std::memcpy(static_cast<void*>(&signature), text.data(), std::min(text.size(), sizeof signature));
  require(!describe(signature, name_of_codec).empty(), "every signature has a description");
}

void read_nic(const std::string& text) {
  const auto nic = nic_from_text(text);
  if (!nic.ok()) return require(nic.status().code() == Code::kInvalidArgument, "an invalid argument");
  const auto again = nic_from_text(to_text(nic.value()));
  require(again.ok() && again.value() == nic.value(), "a NIC comes back the same");
}

void read_codec(const std::string& text) {
  const auto codec = codec_from_text(text);
  if (!codec.ok()) return require(codec.status().code() == Code::kInvalidArgument, "an invalid argument");
  const auto again = codec_from_text(to_text(codec.value()));
  require(again.ok() && again.value() == codec.value(), "a codec comes back the same");
}

void read_nonce(const std::string& text) {
  const auto nonce = Nonce::parse(text);
  if (nonce) require(Nonce::parse(nonce->text()) == nonce, "a nonce comes back the same: " + text);
}

void read_cores(const std::string& text) {
  const auto crowds = crowds_of({{text, text}, {text.substr(text.size() / 2), text}});
  require(most_ranks_per_core(crowds) >= 1, "there is a rank per core at least");
}

// Rank 1 of a group of two is the input: its endpoint, and what it confirms.
class StoreOfAStranger final : public Store {
 public:
  explicit StoreOfAStranger(const std::string& said) {
    const size_t end = said.find('\0');
    values_["/card/1"] = said.substr(0, end);
    if (end != std::string::npos) values_["/agree/1"] = said.substr(end + 1);
  }
  Status set(const std::string& key, const std::string& value) override {
    values_[key] = value;
    return {};
  }
  Result<std::string> get(const std::string& key, milliseconds) override {
    if (key == "/agree/1" && !values_.contains(key)) return get("/agree/0", milliseconds(1));  // confirms anything
    const auto found = values_.find(key);
    if (found == values_.end()) return Status(Code::kTimeout, "no " + key);
    return found->second;
  }

 private:
  std::map<std::string, std::string> values_;
};

void read_endpoint_set(const std::string& text) {
  StoreOfAStranger store(text);
  RankEndpoint mine;
  mine.settings = "wire format";
  mine.host = "here";
  int prepared = 0;
  const auto set =
      exchange_endpoints(store, "/", 0, 2, mine, Clock::now(), [&](const std::vector<RankEndpoint>& endpoints) {
        require(endpoints.size() == 2 && endpoints[0] == mine, "the endpoints are those of the ranks, in order");
        ++prepared;
        return Status();
      });
  if (set.ok())
    require(prepared > 0 && set.value().endpoints[1].settings == mine.settings,
            "a set of endpoints has equal settings");
}

using Read = void (*)(const std::string&);
constexpr std::array<Read, 12> kReaders = {
    read_endpoint, read_group_endpoint, read_address, read_order, read_appointment, read_reason, read_signature,
    read_nic,      read_codec,          read_nonce,   read_cores, read_endpoint_set};

}  // namespace

void peer_texts_target(Input input) {
  Reader reader(input);
  const Read read = kReaders[reader.one_of(kReaders.size())];
  read(reader.text());
}

}  // namespace braid::fuzz

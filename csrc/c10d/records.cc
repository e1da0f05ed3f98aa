// SPDX-License-Identifier: Apache-2.0
#include "c10d/records.h"

#include <string>
#include <utility>

#include "c10d/recorder.h"
#include "communicator/process.h"

namespace braid::adapter {
namespace {

// The version of the format of the entries below.
constexpr const char* kVersion = "2.10";
// torch's reader of records knows a fixed set of backends; braid is not in it.
constexpr const char* kLibrary = "gloo:";

std::string name_of(const RecordedOperation& operation) {
  std::string name = std::string(kLibrary) + operation.name;
  if (!operation.is_message) return name;
  const bool sends = std::string(operation.name) == "send";
  const std::string from = std::to_string(operation.from), to = std::to_string(operation.to);
  return name + (sends ? " " + from + "->" + to : " " + to + "<-" + from);
}

const char* state_of(const RecordedOperation& operation) {
  switch (operation.state) {
    case RecordedOperation::State::kStarted: return "started";
    case RecordedOperation::State::kCompleted: return "completed";
    case RecordedOperation::State::kFailed: return "started";  // it never completes
  }
  return "";
}

void set_tensors(py::dict& entry, const char* which, const std::vector<RecordedTensor>& tensors) {
  py::list sizes, dtypes;
  for (const RecordedTensor& tensor : tensors) {
    sizes.append(std::vector<int64_t>(tensor.sizes.begin(), tensor.sizes.end()));
    dtypes.append(std::string(c10::toString(tensor.dtype)));
  }
  entry[py::str(std::string(which) + "_sizes")] = sizes;
  entry[py::str(std::string(which) + "_dtypes")] = dtypes;
}

py::dict entry_of(const RecordedOperation& operation) {
  py::dict entry;
  entry["record_id"] = operation.id;
  entry["pg_id"] = operation.group;
  entry["process_group"] = py::make_tuple(operation.group, operation.description);
  entry["collective_seq_id"] = operation.is_message ? 0 : operation.sequence;
  entry["p2p_seq_id"] = operation.is_message ? operation.sequence : 0;
  entry["op_id"] = operation.sequence;
  entry["profiling_name"] = name_of(operation);
  entry["time_created_ns"] = operation.created_ns;
  set_tensors(entry, "input", operation.inputs);
  set_tensors(entry, "output", operation.outputs);
  entry["state"] = state_of(operation);
  entry["time_discovered_started_ns"] = operation.created_ns;
  entry["time_discovered_completed_ns"] =
      operation.ended_ns == 0 ? py::object(py::none()) : py::int_(operation.ended_ns);
  entry["duration_ms"] = operation.ended_ns == 0
                             ? py::object(py::none())
                             : py::float_(static_cast<double>(operation.ended_ns - operation.created_ns) * 1e-6);
  entry["retired"] = operation.ended_ns != 0;
  entry["timeout_ms"] = operation.timeout.count();
  entry["is_p2p"] = operation.is_message;
  entry["failed"] = operation.state == RecordedOperation::State::kFailed;
  py::list awaited;
  if (const auto work = operation.work.lock()) {
    for (const Node rank : work->awaited()) awaited.append(operation.members->global_rank(rank));
  }
  entry["awaited_ranks"] = std::move(awaited);
  entry["frames"] = py::list();
  return entry;
}

std::string ranks_of(const RecordedOperation& operation) {
  std::string text;
  for (int rank = 0; rank < operation.ranks; ++rank) {
    text += (rank == 0 ? "[" : ", ") + std::to_string(operation.members->global_rank(rank));
  }
  return text + "]";
}

}  // namespace

std::vector<py::dict> rows_of(const Communicator& group) {
  std::vector<py::dict> rows;
  for (const OperationStats& stats : group.stats()) {
    py::dict row;
    for_each_field(stats, [&](const char* name, const auto& value) { row[name] = value; });
    rows.push_back(std::move(row));
  }
  return rows;
}

py::dict flight_record() {
  py::list entries;
  py::dict groups;
  for (const RecordedOperation& operation : of_this_process<Recorder>().operations()) {
    entries.append(entry_of(operation));
    if (groups.contains(operation.group)) continue;
    py::dict group;
    group["name"] = operation.group;
    group["desc"] = operation.description;
    group["ranks"] = ranks_of(operation);
    groups[py::str(operation.group)] = group;
  }
  py::dict record;
  record["version"] = kVersion;
  record["comm_lib_version"] = "braid";
  record["pg_config"] = groups;
  record["pg_status"] = py::dict();
  record["entries"] = entries;
  return record;
}

}  // namespace braid::adapter

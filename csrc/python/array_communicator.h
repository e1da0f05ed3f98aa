// SPDX-License-Identifier: Apache-2.0
// A group as python/braid/_array/communicator.py uses it: operations on NumPy memory, waits that let go of the GIL and
// look up for signals. Arguments are checked there; what is checked here keeps memory safe.
//
// All functions: the GIL is held by the caller.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "communicator/communicator.h"
#include "communicator/process.h"
#include "interpreter/stated_numbers.h"

namespace braid {

namespace py = pybind11;

// The exceptions of braid._errors. REQUIRES: !status.ok().
[[noreturn]] void raise(const Status& status);
void raise_if_failed(const Status& status);

// Frees the arrays of operations that were dropped and have finished since.
void let_go_of_finished();

// An operation under way. Owns the arrays until it is done, even if the caller drops it before.
class ArrayRequest {
 public:
  ArrayRequest(std::shared_ptr<Work> work, std::vector<py::object> arrays);
  ~ArrayRequest();
  ArrayRequest(const ArrayRequest&) = delete;
  ArrayRequest& operator=(const ArrayRequest&) = delete;

  bool done() const;
  // Of a receive: the sender, or kAnyNode while it is not known.
  Node source() const;
  // Raises what the operation failed with; or, when `timeout` passes first, a timeout that harms nothing.
  void wait(milliseconds timeout);

 private:
  void check_process() const;

  const int made_under_ = fork_count();
  std::shared_ptr<Work> work_;
  std::vector<py::object> arrays_;
};

// What an operation reads or writes: one array, cut into consecutive blocks of so many elements each. Without
// counts it is one block, without an array none.
struct Blocks {
  py::object array;
  std::vector<size_t> counts;
};

class ArrayCommunicator {
 public:
  ArrayCommunicator(std::shared_ptr<Communicator> group)
      : rank_(group->rank()), ranks_(group->ranks()), group_(std::move(group)) {}
  ~ArrayCommunicator();
  ArrayCommunicator(const ArrayCommunicator&) = delete;
  ArrayCommunicator& operator=(const ArrayCommunicator&) = delete;

  // Finds the other ranks through `store`, an object with set(key, bytes) and get(key, timeout_s) -> bytes that raises
  // TimeoutError. What else the store raises comes out of here. `links` is what a file named by BRAID_LINKS
  // states; `servers` such a store for aggregators, or None.
  static std::unique_ptr<ArrayCommunicator> create(py::object store, int rank, int size, const std::string& name,
                                                   milliseconds timeout, const std::string& reach,
                                                   const std::optional<StatedNumbers>& links, py::object servers);

  Node rank() const { return rank_; }
  int ranks() const { return ranks_; }

  // Carries out a collective; in this thread, if nothing is queued. The caller holds the arrays until it returns;
  // one that is interrupted before the operation has ended leaves them to it.
  void run(Operation operation, const py::object& in, const py::object& out) const;
  void run(const std::string& collective, const std::string& dtype, const std::string& op, int root,
           const Blocks& in, const Blocks& out) const;
  std::unique_ptr<ArrayRequest> start(const std::string& collective, const std::string& dtype,
                                      const std::string& op, int root, const Blocks& in, const Blocks& out);
  // An all_reduce of float32 in place, in fewer bytes between hosts. `residual` is an array or None.
  std::unique_ptr<ArrayRequest> start_lossy(const py::array& array, const std::string& codec,
                                            const std::string& op, const py::object& residual, uint32_t seed);
  std::unique_ptr<ArrayRequest> send(const py::array& array, int to, uint32_t tag);
  std::unique_ptr<ArrayRequest> recv(py::array array, int from, uint32_t tag);

  // The group; raises when it is closed or was left behind by a fork.
  std::shared_ptr<Communicator> group() const;
  void close();

 private:
  const int made_under_ = fork_count();
  const Node rank_;
  const int ranks_;
  std::shared_ptr<Communicator> group_;
};

}  // namespace braid

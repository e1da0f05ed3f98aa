// SPDX-License-Identifier: Apache-2.0
#include "python/array_communicator.h"

#include <utility>

#include "interpreter/interrupts.h"
#include "interpreter/without_gil.h"
#include "python/python_store.h"

namespace braid {
namespace {

std::byte* memory_of(const py::array& array) {
  if ((array.flags() & py::array::c_style) == 0) throw py::value_error("expected a C-contiguous array");
  return static_cast<std::byte*>(const_cast<void*>(array.data()));
}

template <class Memory>
std::vector<Memory> cut(const Blocks& blocks, bool writable) {
  if (blocks.array.is_none()) return {};
  const auto array = py::cast<py::array>(blocks.array);
  if (writable && !array.writeable()) throw py::value_error("expected an array that may be written");
  std::byte* memory = memory_of(array);
  const auto element = static_cast<size_t>(array.itemsize());
  const auto elements = static_cast<size_t>(array.size());
  if (blocks.counts.empty()) return {Memory{memory, elements * element}};
  std::vector<Memory> cut;
  size_t at = 0;
  for (const size_t count : blocks.counts) {
    if (count > elements - at) throw py::value_error("the blocks have more elements than the array");
    cut.emplace_back(memory + at * element, count * element);
    at += count;
  }
  return cut;
}

Operation operation_of(const std::string& collective, const std::string& dtype, const std::string& op, int root,
                       const Blocks& in, const Blocks& out) {
  const auto kind = collective_from_name(collective);
  const auto element = dtype_from_name(dtype);
  const auto reduction = reduce_op_from_name(op);
  if (!kind) throw py::value_error("no collective is called \"" + collective + "\"");
  if (!element) throw py::value_error("unknown dtype \"" + dtype + "\"");
  if (!reduction) throw py::value_error("unknown reduction \"" + op + "\"");
  return {*kind, *element, *reduction, root, cut<ConstBytes>(in, false), cut<Bytes>(out, true)};
}

// Nobody else keeps the arrays for the operation: without memory to do so, that ends first.
std::unique_ptr<ArrayRequest> hold(std::shared_ptr<Work> work, std::initializer_list<py::object> arrays) {
  try {
    return std::make_unique<ArrayRequest>(work, std::vector<py::object>(arrays));
  } catch (...) {
    const WithoutGil without_gil;
    static_cast<void>(work->wait(kNoDeadline));
    throw;
  }
}

}  // namespace

std::unique_ptr<ArrayCommunicator> ArrayCommunicator::create(py::object store, int rank, int size,
                                                             const std::string& name, milliseconds timeout,
                                                             const std::string& reach,
                                                             const std::optional<StatedNumbers>& links,
                                                             py::object servers) {
  auto options = options_from_env();
  raise_if_failed(options.status());
  options.value().timeout = timeout;
  options.value().stated = stated_links_of(links);
  if (!reach.empty()) options.value().reach = reach;
  const auto for_servers = servers.is_none() ? nullptr : std::make_shared<PythonStore>(std::move(servers));
  options.value().servers = for_servers;
  const auto rendezvous_store = std::make_shared<PythonStore>(std::move(store));
  Interrupts interrupts;
  options.value().give_up = interrupts.give_up();
  auto group = [&] {
    const WithoutGil without_gil;
    return make_group(rendezvous_store, rank, size, name, options.value());
  }();
  rendezvous_store->raise_what_was_caught();
  if (for_servers && !group.ok()) for_servers->raise_what_was_caught();
  if (!group.ok() && interrupts.restore()) throw py::error_already_set();
  raise_if_failed(group.status());
  return std::make_unique<ArrayCommunicator>(std::move(group).value());
}

ArrayCommunicator::~ArrayCommunicator() { close(); }

void ArrayCommunicator::close() {
  std::shared_ptr<Communicator> group = std::move(group_);
  if (!group) return;
  if (made_under_ != fork_count()) {
    abandon(std::move(group));
    return;
  }
  {
    const WithoutGil without_gil;
    Interrupts interrupts;  // what is raised comes out a moment later: this may be a destructor
    end_group(std::move(group), interrupts.give_up());
  }
  let_go_of_finished();
}

std::shared_ptr<Communicator> ArrayCommunicator::group() const {
  if (made_under_ != fork_count()) {
    raise({Code::kAborted,
           "this communicator was made before the process was forked, and cannot be used in the child; make a new "
           "one there, or start children with the 'spawn' or 'forkserver' method"});
  }
  if (!group_) raise({Code::kAborted, "this communicator is closed"});
  return group_;
}

void ArrayCommunicator::run(Operation operation, const py::object& in, const py::object& out) const {
  operation.inline_for = kLookUpEvery;
  const std::shared_ptr<Communicator> owner = group();
  const auto work = [&] {
    const WithoutGil without_gil;
    return owner->run(std::move(operation));
  }();
  raise_if_failed(work.status());
  if (work.value()) {
    hold(work.value(), {in, out})->wait(milliseconds(0));
  } else {
    let_go_of_finished();
  }
}

void ArrayCommunicator::run(const std::string& collective, const std::string& dtype, const std::string& op,
                            int root, const Blocks& in, const Blocks& out) const {
  run(operation_of(collective, dtype, op, root, in, out), in.array, out.array);
}

std::unique_ptr<ArrayRequest> ArrayCommunicator::start(const std::string& collective, const std::string& dtype,
                                                       const std::string& op, int root, const Blocks& in,
                                                       const Blocks& out) {
  const std::shared_ptr<Communicator> owner = group();
  Operation operation = operation_of(collective, dtype, op, root, in, out);
  auto work = [&] {
    const WithoutGil without_gil;
    return owner->start(std::move(operation), false);
  }();
  raise_if_failed(work.status());
  return hold(std::move(work).value(), {in.array, out.array});
}

std::unique_ptr<ArrayRequest> ArrayCommunicator::start_lossy(const py::array& array, const std::string& codec,
                                                             const std::string& op, const py::object& residual,
                                                             uint32_t seed) {
  const std::shared_ptr<Communicator> owner = group();
  const auto parsed = codec_from_text(codec);
  if (!parsed.ok()) throw py::value_error(parsed.status().message());
  const std::string dtype = py::str(array.dtype());
  Operation operation = operation_of("all_reduce", dtype, op, 0, {array, {}}, {array, {}});
  operation.lossy = Lossy{parsed.value(), nullptr, seed};
  if (!residual.is_none()) {
    const auto kept = cut<Bytes>({residual, {}}, true)[0];
    if (kept.size() / sizeof(float) != operation.outputs[0].size() / size_of(operation.dtype)) {
      throw py::value_error("the residual needs as many floats as the array");
    }
    operation.lossy->residual = reinterpret_cast<float*>(kept.data());
  }
  auto work = [&] {
    const WithoutGil without_gil;
    return owner->start(std::move(operation), false);
  }();
  raise_if_failed(work.status());
  return hold(std::move(work).value(), {array, residual});
}

std::unique_ptr<ArrayRequest> ArrayCommunicator::send(const py::array& array, int to, uint32_t tag) {
  const std::shared_ptr<Communicator> owner = group();
  const ConstBytes bytes{memory_of(array), static_cast<size_t>(array.nbytes())};
  auto work = [&] {
    const WithoutGil without_gil;
    return owner->send(to, tag, bytes, milliseconds(0));
  }();
  raise_if_failed(work.status());
  return hold(std::move(work).value(), {array});
}

std::unique_ptr<ArrayRequest> ArrayCommunicator::recv(py::array array, int from, uint32_t tag) {
  const std::shared_ptr<Communicator> owner = group();
  if (!array.writeable()) throw py::value_error("expected an array that may be written");
  const Bytes bytes{memory_of(array), static_cast<size_t>(array.nbytes())};
  auto work = [&] {
    const WithoutGil without_gil;
    return owner->recv(from, tag, bytes, milliseconds(0));
  }();
  raise_if_failed(work.status());
  return hold(std::move(work).value(), {array});
}

}  // namespace braid

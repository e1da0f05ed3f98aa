// SPDX-License-Identifier: Apache-2.0
// Arrays of other libraries for python/braid/_array: copies between a GPU and page-locked memory, and DLPack's tensors.
// Addresses and streams are numbers here. Python has checked the arguments; what is checked here keeps memory safe.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <vector>

#include "cuda/copies.h"
#include "interpreter/without_gil.h"
#include "python/array_memory.h"
#include "python/bind.h"
#include "python/dlpack.h"

namespace braid {
namespace {

using cuda::Copies;
using cuda::Way;

void raise_unless_ok(const Status& status) {
  if (status.ok()) return;
  if (status.code() == Code::kInvalidArgument) throw py::value_error(status.message());
  throw std::runtime_error(status.message());
}

const cuda::Driver& driver() {
  const auto& found = cuda::Driver::of_process();
  raise_unless_ok(found.status());
  return found.value();
}

Way way_of(bool up) { return up ? Way::kUp : Way::kDown; }

// Goes back to its pool.
class PinnedBlock {
 public:
  PinnedBlock(cuda::PinnedPool& pool, void* taken, size_t bytes) : memory(taken), pool_(pool), bytes_(bytes) {}
  ~PinnedBlock() { pool_.give_back(memory, bytes_); }
  PinnedBlock(const PinnedBlock&) = delete;
  PinnedBlock& operator=(const PinnedBlock&) = delete;

  void* const memory;

 private:
  cuda::PinnedPool& pool_;
  const size_t bytes_;
};

// Python's handle of a device's copies, which live as long as the process.
class DeviceCopies {
 public:
  explicit DeviceCopies(int ordinal) {
    auto found = Copies::of_device(driver(), ordinal);
    raise_unless_ok(found.status());
    copies_ = found.value();
  }

  cuda::Stream stream(bool up) const { return copies_->stream(way_of(up)); }
  void follow(bool up, cuda::Stream theirs) const { raise_unless_ok(copies_->follow(way_of(up), theirs)); }

  void finish_all() const {
    raise_unless_ok([this] {
      const WithoutGil without_gil;
      return copies_->finish_all();
    }());
  }

  // An array of uint8. The block goes back to the pool when nobody holds the array or a view of it.
  py::array pinned(size_t bytes) const {
    auto taken = copies_->pinned().take(bytes);
    raise_unless_ok(taken.status());
    auto block = std::make_unique<PinnedBlock>(copies_->pinned(), taken.value(), bytes);
    void* const memory = block->memory;
    const py::capsule owner(block.release(), [](void* owned) { delete static_cast<PinnedBlock*>(owned); });
    return py::array(py::dtype::of<uint8_t>(), {bytes}, {size_t{1}}, memory, owner);
  }

  void copy_down(const py::array& host, uintptr_t from) const {
    const Bytes to = bytes_of(host, true);
    raise_unless_ok([&] {
      const WithoutGil without_gil;
      return copies_->copy_down(to.data(), from, to.size());
    }());
  }

  void copy_up(uintptr_t to, const py::array& host) const {
    const Bytes from = bytes_of(host, false);
    raise_unless_ok([&] {
      const WithoutGil without_gil;
      return copies_->copy_up(to, from.data(), from.size());
    }());
  }

  // (latency_s, s_per_byte) down, the same up.
  std::pair<std::pair<double, double>, std::pair<double, double>> rates() const {
    const auto found = [this] {
      const WithoutGil without_gil;
      return copies_->rates();
    }();
    raise_unless_ok(found.status());
    const auto& [down, up] = found.value();
    return {{down.latency_s, down.s_per_byte}, {up.latency_s, up.s_per_byte}};
  }

 private:
  Copies* copies_ = nullptr;
};

}  // namespace

void bind_copies(py::module_& m) {
  py::class_<DeviceCopies>(m, "CudaCopies")
      .def(py::init<int>(), py::arg("device"))
      .def("stream", &DeviceCopies::stream, py::arg("up"),
           "The stream of the copies to the device, or to the host.")
      .def("follow", &DeviceCopies::follow, py::arg("up"), py::arg("stream"),
           "Later copies wait for what is queued on that stream by now.")
      .def("finish_all", &DeviceCopies::finish_all, "Wait for all work of the device.")
      .def("pinned", &DeviceCopies::pinned, py::arg("nbytes"), "An array of uint8 in page-locked memory.")
      .def("copy_down", &DeviceCopies::copy_down, py::arg("host"), py::arg("address"))
      .def("copy_up", &DeviceCopies::copy_up, py::arg("address"), py::arg("host"))
      .def("rates", &DeviceCopies::rates,
           "Seconds, and seconds per byte, of copies down and of copies up. Measured at the first call.");
  m.def(
      "cuda_device_of",
      [](uintptr_t address) {
        const auto found = Copies::device_of(driver(), address);
        raise_unless_ok(found.status());
        return found.value();
      },
      py::arg("address"), "The ordinal of the device that has this memory.");
  py::class_<DlpackTensor>(m, "DlpackTensor")
      .def(py::init<py::capsule>(), py::arg("capsule"))
      .def_property_readonly("address", &DlpackTensor::address)
      .def_property_readonly("shape", &DlpackTensor::shape)
      .def_property_readonly("strides", &DlpackTensor::strides, "In elements; None if the memory is C-contiguous.")
      .def_property_readonly("dtype", &DlpackTensor::dtype, "DLPack's code, bits and lanes.")
      .def_property_readonly("device", &DlpackTensor::device, "DLPack's type of the device, and its ordinal.")
      .def_property_readonly("read_only", &DlpackTensor::read_only)
      .def("array", &DlpackTensor::array, py::arg("dtype"), "NumPy's view of a tensor in memory of the host.");
}

}  // namespace braid

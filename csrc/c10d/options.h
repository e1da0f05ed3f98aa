// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace braid::adapter {

// c10d's options and nothing more: environment variables hold braid's own settings. It is a separate class so that
// split_group() can copy it in Python.
struct BackendOptions final : ::c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : Options("braid", timeout) {}

  // From torch 2.14 on this overrides Options::clone().
  c10::intrusive_ptr<Options> clone() const { return c10::make_intrusive<BackendOptions>(*this); }
};

}  // namespace braid::adapter

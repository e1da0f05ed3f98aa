// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

namespace braid::adapter {

// c10d's options and nothing more: what is braid's own is set by environment variables. A class of its own, so that
// Python can copy it, which split_group() does.
struct BackendOptions final : ::c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout)
      : Options("braid", timeout) {}

  // From torch 2.14 on this overrides Options::clone().
  c10::intrusive_ptr<Options> clone() const { return c10::make_intrusive<BackendOptions>(*this); }
};

}  // namespace braid::adapter

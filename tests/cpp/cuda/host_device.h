// SPDX-License-Identifier: Apache-2.0
// A Device whose kernels run on the host.
#pragma once

#include <cstring>
#include <string>

#include "cuda/cuda_on_host.h"
#include "cuda/device.h"
#include "cuda/kernels.cu"

namespace braid::cuda {

class HostDevice : public Device {
 public:
  uint32_t multiprocessors() const override { return 1; }

  Status launch(const char* kernel, uint32_t blocks, const Job& job, Stream) override {
    launched.emplace_back(kernel);
    for (const auto& [name, function] : kKernels) {
      if (std::string_view(name) == kernel) {
        cuda_on_host::launch(function, blocks, kThreads, job);
        return {};
      }
    }
    return {Code::kInternal, std::string("there is no kernel ") + kernel};
  }
  Status zero(void* at, size_t bytes, Stream) override {
    std::memset(at, 0, bytes);
    return {};
  }

  std::vector<std::string> launched;

 private:
  struct Named {
    const char* name;
    void (*function)(Job);
  };
#define BRAID_NAMED(name) \
  Named { #name, braid_##name }
  static constexpr Named kKernels[] = {
      BRAID_NAMED(pack),
      BRAID_NAMED(unpack),
      BRAID_NAMED(encode_fp16),
      BRAID_NAMED(encode_bf16),
      BRAID_NAMED(encode_fp8_e4m3),
      BRAID_NAMED(encode_fp8_e5m2),
      BRAID_NAMED(encode_int8),
      BRAID_NAMED(encode_int4),
      BRAID_NAMED(encode_qsgd),
      BRAID_NAMED(encode_sign),
      BRAID_NAMED(decode_fp16),
      BRAID_NAMED(decode_bf16),
      BRAID_NAMED(decode_fp8_e4m3),
      BRAID_NAMED(decode_fp8_e5m2),
      BRAID_NAMED(decode_int8),
      BRAID_NAMED(decode_int4),
      BRAID_NAMED(decode_qsgd),
      BRAID_NAMED(decode_sign),
      BRAID_NAMED(top_k_gather),
      BRAID_NAMED(top_k_refine),
      BRAID_NAMED(top_k_count),
      BRAID_NAMED(top_k_write),
      BRAID_NAMED(send_chosen),
      BRAID_NAMED(drop_chosen),
      BRAID_NAMED(keep),
      BRAID_NAMED(check_message),
      BRAID_NAMED(clear),
      BRAID_NAMED(scatter),
  };
#undef BRAID_NAMED
};

}  // namespace braid::cuda

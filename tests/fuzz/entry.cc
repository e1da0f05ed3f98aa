// SPDX-License-Identifier: Apache-2.0
// Where libFuzzer enters. BRAID_FUZZ_TARGET: the function of targets.h that this fuzzer is for.
#include "fuzz/targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  braid::fuzz::BRAID_FUZZ_TARGET({data, size});
  return 0;
}

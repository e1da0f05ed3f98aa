// SPDX-License-Identifier: Apache-2.0
// The kernels by the names that launch.cc asks the driver for. Built by nvcc into one fat binary or by NVRTC when first
// used, always with the flags of cmake/BraidCuda.cmake, without which the bytes would not be those of the host; the
// tests build it with the host's compiler too (tests/cpp/cuda/cuda_on_host.h).
#include "cuda/sparse.cuh"
#include "cuda/top_k.cuh"

#define BRAID_KERNEL(name, ...)                                       \
  extern "C" __global__ void __launch_bounds__(braid::cuda::kThreads) \
      braid_##name(const __grid_constant__ braid::cuda::Job job) {    \
    using namespace braid::cuda;                                      \
    __VA_ARGS__(job);                                                 \
  }

BRAID_KERNEL(pack, pack)
BRAID_KERNEL(unpack, unpack)

BRAID_KERNEL(encode_fp16, encode_dense<HalfForm<Half>>)
BRAID_KERNEL(encode_bf16, encode_dense<HalfForm<Brain>>)
BRAID_KERNEL(encode_fp8_e4m3, encode_dense<ScaledForm<Float8<E4M3>>>)
BRAID_KERNEL(encode_fp8_e5m2, encode_dense<ScaledForm<Float8<E5M2>>>)
BRAID_KERNEL(encode_int8, encode_dense<ScaledForm<Int8>>)
BRAID_KERNEL(encode_int4, encode_dense<ScaledForm<Int4>>)
BRAID_KERNEL(encode_qsgd, encode_dense<ScaledForm<Qsgd>>)
BRAID_KERNEL(encode_sign, encode_dense<SignForm>)

BRAID_KERNEL(decode_fp16, decode_dense<HalfForm<Half>>)
BRAID_KERNEL(decode_bf16, decode_dense<HalfForm<Brain>>)
BRAID_KERNEL(decode_fp8_e4m3, decode_dense<ScaledForm<Float8<E4M3>>>)
BRAID_KERNEL(decode_fp8_e5m2, decode_dense<ScaledForm<Float8<E5M2>>>)
BRAID_KERNEL(decode_int8, decode_dense<ScaledForm<Int8>>)
BRAID_KERNEL(decode_int4, decode_dense<ScaledForm<Int4>>)
BRAID_KERNEL(decode_qsgd, decode_dense<ScaledForm<Qsgd>>)
BRAID_KERNEL(decode_sign, decode_dense<SignForm>)

BRAID_KERNEL(top_k_gather, top_k_gather)
BRAID_KERNEL(top_k_refine, top_k_refine)
BRAID_KERNEL(top_k_count, top_k_count)
BRAID_KERNEL(top_k_write, top_k_write)

BRAID_KERNEL(send_chosen, send_chosen)
BRAID_KERNEL(keep, keep)
BRAID_KERNEL(drop_chosen, drop_chosen)
BRAID_KERNEL(check_message, check_message)
BRAID_KERNEL(clear, clear)
BRAID_KERNEL(scatter, scatter)

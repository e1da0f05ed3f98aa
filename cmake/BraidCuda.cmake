# SPDX-License-Identifier: Apache-2.0
# braid_cuda_kernels(): kernels.fatbin out of csrc/cuda/kernels.cu, for the package, where there is an nvcc. Without one
# the package has only the sources, which python/braid/_gpu/kernels.py compiles when they are first used.
set(BRAID_WITH_CUDA AUTO CACHE STRING "Compile the CUDA kernels: AUTO (if there is an nvcc), ON or OFF")
set_property(CACHE BRAID_WITH_CUDA PROPERTY STRINGS AUTO ON OFF)

# The first four make the bytes those of the host: no fused multiply-add, IEEE division, subnormal numbers kept.
set(BRAID_CUDA_FLAGS --fmad=false --prec-div=true --prec-sqrt=true --ftz=false --std=c++20 --expt-relaxed-constexpr)

# Sets `out` to an nvcc that works, and `out`_VERSION, or to nothing and `out`_WHY.
function(braid_find_nvcc out)
  find_program(BRAID_NVCC nvcc HINTS ENV CUDA_HOME ENV CUDA_PATH /usr/local/cuda PATH_SUFFIXES bin)
  if(NOT BRAID_NVCC)
    set(${out}_WHY "there is no nvcc" PARENT_SCOPE)
    return()
  endif()
  execute_process(COMMAND ${BRAID_NVCC} --version OUTPUT_VARIABLE text ERROR_QUIET)
  if(NOT text MATCHES "release ([0-9]+\\.[0-9]+)")
    set(${out}_WHY "${BRAID_NVCC} does not say its version" PARENT_SCOPE)
    return()
  endif()
  set(version ${CMAKE_MATCH_1})
  if(version VERSION_LESS 12.0)
    set(${out}_WHY "${BRAID_NVCC} is of CUDA ${version}, and 12.0 is the oldest that will do" PARENT_SCOPE)
    return()
  endif()
  # It may lack a host compiler that it supports.
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/probe.cu)
  file(WRITE ${probe} "#include <cstdint>\nextern \"C\" __global__ void probe(uint32_t* at) { *at = 1; }\n")
  execute_process(COMMAND ${BRAID_NVCC} ${BRAID_CUDA_FLAGS} --fatbin -arch=sm_80 -o ${probe}.fatbin ${probe}
                  RESULT_VARIABLE failed OUTPUT_VARIABLE text ERROR_VARIABLE text)
  if(failed)
    set(${out}_WHY "${BRAID_NVCC} does not compile: ${text}" PARENT_SCOPE)
    return()
  endif()
  set(${out} ${BRAID_NVCC} PARENT_SCOPE)
  set(${out}_VERSION ${version} PARENT_SCOPE)
endfunction()

function(braid_cuda_kernels)
  if(NOT BRAID_WITH_CUDA STREQUAL "AUTO" AND NOT BRAID_WITH_CUDA)
    return()
  endif()
  braid_find_nvcc(nvcc)
  if(NOT nvcc)
    if(BRAID_WITH_CUDA STREQUAL "AUTO")
      message(STATUS "CUDA kernels are not compiled: ${nvcc_WHY}")
      return()
    endif()
    message(FATAL_ERROR "BRAID_WITH_CUDA=${BRAID_WITH_CUDA}, but ${nvcc_WHY}. Give -DBRAID_NVCC=<path>, or "
                        "-DBRAID_WITH_CUDA=OFF.")
  endif()
  # Machine code for what is named, and text from which the driver makes code for what comes later.
  set(targets -gencode=arch=compute_80,code=[sm_80,compute_80] -gencode=arch=compute_90,code=sm_90)
  if(nvcc_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND targets -gencode=arch=compute_100,code=sm_100 --compress-mode=size)
  endif()
  set(csrc ${PROJECT_SOURCE_DIR}/csrc)
  set(image ${CMAKE_CURRENT_BINARY_DIR}/kernels.fatbin)
  file(GLOB sources CONFIGURE_DEPENDS ${csrc}/cuda/*.cu ${csrc}/cuda/*.cuh)
  add_custom_command(
    OUTPUT ${image}
    COMMAND ${nvcc} ${BRAID_CUDA_FLAGS} --fatbin --threads 0 ${targets} -I${csrc} -o ${image} ${csrc}/cuda/kernels.cu
    DEPENDS ${sources} ${csrc}/cuda/job.h ${csrc}/codec/formulas.h ${csrc}/base/half.h
    COMMENT "Compiling CUDA kernels"
    VERBATIM)
  add_custom_target(braid_kernels ALL DEPENDS ${image})
  install(FILES ${image} DESTINATION lib)
  message(STATUS "CUDA kernels are compiled by ${nvcc} ${nvcc_VERSION}")
endfunction()

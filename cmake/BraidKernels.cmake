# SPDX-License-Identifier: Apache-2.0
# braid_kernel_files(out): the files of kernels in the current folder, one per instruction set
# (base/instruction_set.h), each to be built with its own flags; the process picks among them when it runs.
function(braid_kernel_files out)
  # No contraction to fused multiply-add: it would round once where narrower CPUs round twice.
  set(flags -ffp-contract=off)
  set(files kernels_baseline.cc)
  set_source_files_properties(kernels_baseline.cc PROPERTIES COMPILE_OPTIONS "${flags}")
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
    list(APPEND files kernels_avx2.cc kernels_avx512.cc)
    list(APPEND flags -mavx2 -mfma -mf16c)
    set_source_files_properties(kernels_avx2.cc PROPERTIES COMPILE_OPTIONS "${flags}")
    list(APPEND flags -mavx512f -mavx512bw -mavx512vl -mavx512dq -mprefer-vector-width=512)
    set_source_files_properties(kernels_avx512.cc PROPERTIES COMPILE_OPTIONS "${flags}")
  endif()
  # A precompiled header is of one instruction set.
  set_source_files_properties(${files} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  set(${out} ${files} PARENT_SCOPE)
endfunction()

# braid_kernel_test(folder table): that the objects of a folder's kernel files define nothing but their tables.
function(braid_kernel_test folder table)
  # Sanitizers add symbols of their own.
  if(CMAKE_NM AND NOT BRAID_SANITIZE)
    add_test(NAME ${folder}.symbols COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DTABLE=${table}
      "-DOBJECTS=$<JOIN:$<TARGET_OBJECTS:braid_${folder}>,|>"
      -P ${PROJECT_SOURCE_DIR}/tests/cpp/support/check_symbols.cmake)
    set_tests_properties(${folder}.symbols PROPERTIES LABELS unit)
  endif()
endfunction()

# SPDX-License-Identifier: Apache-2.0
# Flags that every target of ours is built with.
add_library(braid_flags INTERFACE)
target_compile_options(braid_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers
                       $<$<NOT:$<BOOL:$<TARGET_PROPERTY:BRAID_MAY_SHADOW>>>:-Wshadow>)
# Ranks that compute the same from the same numbers must get the same bits, whatever compiled them.
target_compile_options(braid_flags INTERFACE -ffp-contract=off)
# GCC 12 sees overlapping copies in std::string's operator+ that are not there (GCC bug 105651).
target_compile_options(braid_flags INTERFACE $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>)
if(BRAID_SANITIZE)
  string(REPLACE ";" "," braid_sanitizers "${BRAID_SANITIZE}")
  target_compile_options(braid_flags INTERFACE -fsanitize=${braid_sanitizers} -fno-omit-frame-pointer -g1)
  target_link_options(braid_flags INTERFACE -fsanitize=${braid_sanitizers})
endif()
find_package(Threads REQUIRED)
target_link_libraries(braid_flags INTERFACE Threads::Threads)

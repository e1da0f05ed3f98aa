# SPDX-License-Identifier: Apache-2.0
# Headers that most files of the core read. GCC parses them once for all folders. A build without them shows which file
# forgot an #include: -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON.
set(BRAID_COMMON_HEADERS <algorithm> <atomic> <chrono> <condition_variable> <functional> <map> <memory> <mutex> <optional>
    <span> <string> <thread> <unordered_map> <variant> <vector>)
# ccache takes a compilation with such headers only with this and CCACHE_SLOPPINESS=pch_defines,time_macros.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-fpch-preprocess)
endif()

# braid_folder(name SOURCES ... DEPS ...): one object library per folder of csrc. DEPS are the folders it may
# see; tools/check_layers.py holds the same table and checks the includes.
function(braid_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  add_library(braid_${target} OBJECT ${ARG_SOURCES})
  target_include_directories(braid_${target} PUBLIC ${PROJECT_SOURCE_DIR}/csrc)
  target_link_libraries(braid_${target} PRIVATE braid_flags)
  if(TARGET braid_base AND NOT name STREQUAL "base")
    target_precompile_headers(braid_${target} REUSE_FROM braid_base)
  else()
    target_precompile_headers(braid_${target} PRIVATE ${BRAID_COMMON_HEADERS})
  endif()
  foreach(dep IN LISTS ARG_DEPS)
    string(REPLACE "/" "_" dep ${dep})
    target_link_libraries(braid_${target} PUBLIC braid_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY BRAID_FOLDERS braid_${target})
endfunction()

# braid_test_program(target SOURCES...): a binary of GoogleTest tests, without the core.
function(braid_test_program target)
  add_executable(${target} ${ARGN} $<TARGET_OBJECTS:braid_watchdog>)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/csrc ${PROJECT_SOURCE_DIR}/tests/cpp)
  target_link_libraries(${target} PRIVATE GTest::gtest_main braid_flags)
  # Files that are merged shadow each other's names.
  set_target_properties(${target} PROPERTIES BRAID_MAY_SHADOW ON)
  # A third of the time to compile; the core under test keeps its own flags.
  # GCC forgets that a precompiled macro is GoogleTest's own, and warns of the else in it.
  target_compile_options(${target} PRIVATE -Og $<$<CXX_COMPILER_ID:GNU>:-Wno-dangling-else>)
  target_precompile_headers(${target} REUSE_FROM braid_watchdog)
  add_dependencies(braid_tests ${target})
endfunction()

# braid_add_test(name target parts [labels...]): runs the tests of a binary, in so many parts that may run side by side.
# The parts of what takes longest begin first (COST).
function(braid_add_test name target parts)
  math(EXPR last "${parts} - 1")
  foreach(part RANGE ${last})
    set(full ${name})
    if(parts GREATER 1)
      set(full ${name}.${part})
    endif()
    add_test(NAME ${full} COMMAND ${target})
    # A test that stands still ends its binary sooner (watchdog.cc) and is named; this bounds all of them together.
    set_tests_properties(${full} PROPERTIES LABELS "unit;${ARGN}" TIMEOUT 1800 COST ${parts}
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${parts};GTEST_SHARD_INDEX=${part}")
  endforeach()
endfunction()

# braid_cpp_test(folder SOURCES ... [LABELS ...] [PARTS n]): one GoogleTest binary per folder of tests/cpp.
function(braid_cpp_test name)
  cmake_parse_arguments(ARG "" "PARTS" "SOURCES;LABELS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  if(NOT ARG_PARTS)
    set(ARG_PARTS 1)
  endif()
  braid_test_program(${target}_test ${ARG_SOURCES})
  target_link_libraries(${target}_test PRIVATE braid)
  braid_add_test(${name} ${target}_test ${ARG_PARTS} ${ARG_LABELS})
endfunction()

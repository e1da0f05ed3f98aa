# SPDX-License-Identifier: Apache-2.0
# braid_folder(name SOURCES ... DEPS ...): one object library per folder of csrc. DEPS are the folders it may
# see; tools/check_layers.py holds the same table and checks the includes.
function(braid_folder name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  add_library(braid_${target} OBJECT ${ARG_SOURCES})
  target_include_directories(braid_${target} PUBLIC ${PROJECT_SOURCE_DIR}/csrc)
  target_link_libraries(braid_${target} PRIVATE braid_flags)
  foreach(dep IN LISTS ARG_DEPS)
    string(REPLACE "/" "_" dep ${dep})
    target_link_libraries(braid_${target} PUBLIC braid_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY BRAID_FOLDERS braid_${target})
endfunction()

# braid_cpp_test(folder SOURCES ... [LABELS ...]): one GoogleTest binary per folder of tests/cpp.
function(braid_cpp_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LABELS" ${ARGN})
  string(REPLACE "/" "_" target ${name})
  add_executable(${target}_test ${ARG_SOURCES} ${PROJECT_SOURCE_DIR}/tests/cpp/support/watchdog.cc)
  target_include_directories(${target}_test PRIVATE ${PROJECT_SOURCE_DIR}/csrc ${PROJECT_SOURCE_DIR}/tests/cpp)
  target_link_libraries(${target}_test PRIVATE braid GTest::gtest_main braid_flags)
  # A third of the time to compile; the core under test keeps its own flags.
  target_compile_options(${target}_test PRIVATE -Og)
  add_test(NAME ${name} COMMAND ${target}_test)
  # A test that stands still ends its binary sooner (watchdog.cc) and is named; this bounds all of them together.
  set_tests_properties(${name} PROPERTIES LABELS "unit;${ARG_LABELS}" TIMEOUT 1800)
endfunction()

# SPDX-License-Identifier: Apache-2.0
# The object files of kernels_*.cc define one symbol each, their table: no inline function or template another file
# could share. OBJECTS, TABLE: part of the name of its type.
string(REPLACE "|" ";" OBJECTS "${OBJECTS}")
list(FILTER OBJECTS INCLUDE REGEX "/kernels_")
if(NOT OBJECTS)
  message(FATAL_ERROR "no object files of kernels to look at")
endif()
foreach(object IN LISTS OBJECTS)
  execute_process(COMMAND ${NM} --extern-only --defined-only ${object} OUTPUT_VARIABLE symbols
    COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+\n" symbols "${symbols}")
  list(LENGTH symbols count)
  if(NOT count EQUAL 1 OR NOT symbols MATCHES "${TABLE}")
    message(FATAL_ERROR "${object} defines more than its table: ${symbols}")
  endif()
endforeach()

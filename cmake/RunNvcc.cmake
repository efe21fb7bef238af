# cmake -DREPORT=<file> -P RunNvcc.cmake -- <command>...
#
# Runs nvcc. Writes the report of ptxas -v on each kernel to <file>, and prints warnings and errors.

set(command)
set(found_dashes FALSE)
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE ${last})
  if(found_dashes)
    list(APPEND command ${CMAKE_ARGV${i}})
  elseif(CMAKE_ARGV${i} STREQUAL "--")
    set(found_dashes TRUE)
  endif()
endforeach()

execute_process(COMMAND ${command} RESULT_VARIABLE result ERROR_VARIABLE messages)
file(WRITE ${REPORT} "${messages}")
string(REGEX REPLACE "(ptxas info |    [0-9]+ bytes stack frame)[^\n]*\n" "" rest "${messages}")
if(NOT rest STREQUAL "")
  message(NOTICE "${rest}")
endif()
if(NOT result EQUAL 0)
  file(REMOVE ${REPORT})
  message(FATAL_ERROR "nvcc failed: ${result}")
endif()

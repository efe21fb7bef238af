# cmake -DPROGRAM=<program> -DLAYOUT=<its argument> "-DLAUNCHER=<mpirun and its flags, -np last>"
#       -P same_losses.cmake: fails unless the program prints the same losses on 1, 2, 4 and 8
# processes, the last one smaller than the first.

set(first)
foreach(count IN ITEMS 1 2 4 8)
  execute_process(COMMAND ${LAUNCHER} ${count} ${PROGRAM} ${LAYOUT}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE errors)
  if(NOT result EQUAL 0 OR NOT output MATCHES "loss")
    message(FATAL_ERROR "${LAYOUT} on ${count} processes: ${result}\n${output}${errors}")
  endif()
  if("${first}" STREQUAL "")
    set(first "${output}")
  endif()
  if(NOT "${output}" STREQUAL "${first}")
    message(FATAL_ERROR "${LAYOUT}: 1 process prints\n${first}and ${count} print\n${output}")
  endif()
endforeach()
string(REGEX MATCHALL "loss [0-9.]+" losses "${first}")
list(GET losses 0 begin)
list(GET losses -1 end)
string(REPLACE "loss " "" begin ${begin})
string(REPLACE "loss " "" end ${end})
if(NOT end LESS begin)
  message(FATAL_ERROR "${LAYOUT}: the loss goes from ${begin} to ${end}, expected less")
endif()

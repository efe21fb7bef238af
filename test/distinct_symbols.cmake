# cmake -DNM=<nm> -DFIRST=<archive> -DSECOND=<archive> -P distinct_symbols.cmake
# Fails if both archives define the same weak symbol of Shale's kernels. The linker would use one
# definition for both, so that the emulator runs code compiled for CUDA, or CUDA runs the
# emulator's.

cmake_minimum_required(VERSION 3.25)

function(weak_symbols archive out)
  execute_process(COMMAND ${NM} -C --defined-only ${archive} OUTPUT_VARIABLE text
                  RESULT_VARIABLE result ERROR_VARIABLE errors)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nm ${archive}: ${errors}")
  endif()
  # Semicolons and brackets would change how CMake splits the text into list elements.
  string(REGEX REPLACE "[][;]" "_" text "${text}")
  string(REPLACE "\n" ";" lines "${text}")
  list(FILTER lines INCLUDE REGEX "^[0-9a-f]+ [VvWwu] .*shale::kernels::")
  list(TRANSFORM lines REPLACE "^[0-9a-f]+ . " "")
  # Host code of the shared headers is the same function in both archives.
  list(FILTER lines INCLUDE REGEX "(cuda|emu)::|_kernel")
  set(${out} ${lines} PARENT_SCOPE)
endfunction()

weak_symbols(${FIRST} first)
weak_symbols(${SECOND} second)
foreach(archive IN ITEMS first second)
  list(LENGTH ${archive} count)
  if(count EQUAL 0)
    message(FATAL_ERROR "found no weak symbols in the ${archive} archive, so nothing was checked")
  endif()
endforeach()

set(common)
foreach(symbol IN LISTS first)
  if(symbol IN_LIST second)
    list(APPEND common ${symbol})
  endif()
endforeach()
if(common)
  list(JOIN common "\n" report)
  message(NOTICE "${report}")
  message(FATAL_ERROR "both archives define these")
endif()

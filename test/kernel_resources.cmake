# cmake -DREPORTS=<folder> -DDEMANGLE=<c++filt> -P kernel_resources.cmake
# Prints the resources of each CUDA kernel, as reported by ptxas at compile time. Fails if a kernel
# keeps variables in memory instead of registers: if it has a stack frame or spills, or if ptxas
# prints a note from C7510 to C7519. Those notes report serialised tensor-core instructions; spills
# are then not counted.

cmake_minimum_required(VERSION 3.25)

file(GLOB reports ${REPORTS}/*.ptxas)
if(NOT reports)
  message(FATAL_ERROR "found no ptxas reports in ${REPORTS}, so nothing was checked")
endif()

set(rows)    # "<architecture> <registers> <shared bytes> <file> <mangled name>"
set(faults)  # "<file>, <architecture>: <what> in <mangled name>"
foreach(report IN LISTS reports)
  cmake_path(GET report STEM file)
  set(architecture "")
  set(function "")
  file(STRINGS ${report} lines)
  foreach(line IN LISTS lines)
    if(line MATCHES "Compiling entry function '(.*)' for '(.*)'")
      set(kernel ${CMAKE_MATCH_1})
      set(architecture ${CMAKE_MATCH_2})
    elseif(line MATCHES "Function properties for (.*)")
      set(function ${CMAKE_MATCH_1})
    elseif(line MATCHES "([0-9]+) bytes stack frame, ([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads")
      if(NOT "${CMAKE_MATCH_1} ${CMAKE_MATCH_2} ${CMAKE_MATCH_3}" STREQUAL "0 0 0")
        string(STRIP "${line}" what)
        list(APPEND faults "${file}, ${architecture}: ${what} in ${function}")
      endif()
    elseif(line MATCHES "Used ([0-9]+) registers")
      set(registers ${CMAKE_MATCH_1})
      set(shared 0)
      if(line MATCHES "([0-9]+) bytes smem")
        set(shared ${CMAKE_MATCH_1})
      endif()
      list(APPEND rows "${architecture} ${registers} ${shared} ${file} ${kernel}")
    elseif(line MATCHES "[(]C751[0-9][)]")
      list(APPEND faults "${file}: ${line}")
    endif()
  endforeach()
endforeach()

# "shale::kernels::cuda::_GLOBAL__N__0123_axpby_kernel<float>(float const*, long)" becomes
# "axpby_kernel<float>".
function(print_lines)
  list(JOIN ARGN "\n" text)
  if(DEMANGLE)
    set(scratch ${REPORTS}/resources.txt)
    file(WRITE ${scratch} "${text}\n")
    execute_process(COMMAND ${DEMANGLE} INPUT_FILE ${scratch} OUTPUT_VARIABLE text)
    file(REMOVE ${scratch})
    string(REGEX REPLACE "[(]anonymous namespace[)]::|[a-zA-Z0-9_]+::" "" text "${text}")
    string(REGEX REPLACE "void |[(][^\n]*" "" text "${text}")
  endif()
  message(NOTICE "${text}")
endfunction()

list(SORT rows COMPARE NATURAL)
print_lines("registers and static shared bytes of each kernel:" ${rows})
if(NOT rows)
  message(FATAL_ERROR "no kernel in the reports of ${REPORTS}, so nothing was checked")
endif()
if(faults)
  list(JOIN faults "\n" text)
  message(NOTICE "${text}")
  message(FATAL_ERROR "kernels keep variables in memory that belong in registers")
endif()

# cmake -DNVCC=<nvcc> -DPTXAS=<ptxas> -DCCBIN=<C++ compiler> -DINCLUDE=<folder of include paths>
#       "-DFILES=<file.cu>;..." [-DVERSION=<PTX ISA>] -DSCRATCH=<folder> -P oldest_ptx.cmake
# Compiles the kernels of these files to PTX, and assembles it as PTX ISA 8.1, which belongs to CUDA
# 12.1, the oldest supported version. An instruction that was added later is an error.

cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/report_problems.cmake)
if(NOT VERSION)
  set(VERSION 8.1)
endif()
file(MAKE_DIRECTORY ${SCRATCH})
set(problems)
set(kernels 0)
foreach(file IN LISTS FILES)
  cmake_path(GET file STEM stem)
  set(arch 80)
  if(stem MATCHES "90(_|$)")
    set(arch 90a)
  endif()
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false -ccbin=${CCBIN} -I${INCLUDE}
            -arch=compute_${arch} -ptx -o ${SCRATCH}/${stem}.ptx ${file}
    COMMAND_ERROR_IS_FATAL ANY)
  file(READ ${SCRATCH}/${stem}.ptx ptx)
  string(REGEX MATCHALL "[.]entry" entries "${ptx}")
  list(LENGTH entries count)
  math(EXPR kernels "${kernels} + ${count}")
  string(REGEX REPLACE "[.]version [0-9.]+" ".version ${VERSION}" ptx "${ptx}")
  # Removes notes that newer compilers write and older ones do not know.
  string(REGEX REPLACE "\n[^\n]*used_bytes_mask[^\n]*" "" ptx "${ptx}")
  file(WRITE ${SCRATCH}/${stem}.ptx "${ptx}")
  execute_process(
    COMMAND ${PTXAS} -O0 -arch=sm_${arch} ${SCRATCH}/${stem}.ptx -o ${SCRATCH}/${stem}.cubin
    RESULT_VARIABLE result ERROR_VARIABLE message OUTPUT_QUIET)
  if(NOT result EQUAL 0)
    string(REGEX MATCH "error[^\n]*" first "${message}")
    list(APPEND problems "${stem}.cu as PTX ${VERSION}: ${first}")
  endif()
endforeach()
file(REMOVE_RECURSE ${SCRATCH})
if(kernels EQUAL 0)
  list(APPEND problems "the files have no kernel, so nothing was checked")
endif()
report_problems(oldest_ptx)

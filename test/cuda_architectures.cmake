# cmake -DROOT=<tree> -DSCRATCH=<folder> -P cuda_architectures.cmake
# Tests the conversion of SHALE_CUDA_ARCHITECTURES: `auto` on several machines, `all` with an old
# and with a new nvcc, and a list. An error must name the oldest supported GPU.

cmake_minimum_required(VERSION 3.25)

# Runs this file as a script that must fail.
if(REFUSED)
  include(${ROOT}/cmake/ShaleCudaArchitectures.cmake)
  shale_cuda_architectures(list ${SCRATCH}/new_nvcc "" ${REFUSED})
  return()
endif()

include(${ROOT}/cmake/ShaleCudaArchitectures.cmake)
file(REMOVE_RECURSE ${SCRATCH})

function(fake name)
  file(WRITE ${SCRATCH}/${name} "#!/bin/sh\necho ${ARGN}\n")
  file(CHMOD ${SCRATCH}/${name} PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()
fake(new_nvcc "sm_75 sm_80 sm_86 sm_89 sm_90 sm_100 sm_103 sm_120")
fake(old_nvcc "sm_75 sm_80 sm_86 sm_89 sm_90")

function(expect want nvcc gpus)
  shale_cuda_architectures(got ${SCRATCH}/${nvcc} "${gpus}" ${ARGN})
  if(NOT got STREQUAL want)
    message(SEND_ERROR "'${ARGN}' on '${gpus}' with ${nvcc}: got ${got}, expected ${want}")
  endif()
endfunction()
expect("80-real;90-real;80-virtual" new_nvcc "" auto)
expect("80-real;90-real;80-virtual" new_nvcc "8.9;9.0" auto)
expect("80-real;90-real;100-real;80-virtual" new_nvcc "10.0" auto)
expect("80-real;90-real;120-real;103-real;80-virtual" new_nvcc "12.0;10.3;8.6" auto)
expect("80-real;90-real;80-virtual" old_nvcc "12.0" auto)
expect("80-real;90-real;75-real;80-virtual" new_nvcc "7.5" auto)
expect("80-real;90-real;80-virtual" new_nvcc "6.1" auto)
expect("75-real;80-real;86-real;89-real;90-real;100-real;120-real;80-virtual" new_nvcc "" all)
expect("75-real;80-real;86-real;89-real;90-real;80-virtual" old_nvcc "" all)
expect("90-virtual" new_nvcc "10.0" 90-virtual)
expect("89-real;120-real" new_nvcc "10.0" 89-real 120-real)

execute_process(COMMAND ${CMAKE_COMMAND} -DROOT=${ROOT} -DSCRATCH=${SCRATCH} -DREFUSED=70-real
                        -P ${CMAKE_CURRENT_LIST_FILE}
  RESULT_VARIABLE result OUTPUT_QUIET ERROR_VARIABLE message)
if(result EQUAL 0 OR NOT message MATCHES "70-real, expected 75 or later")
  message(SEND_ERROR "70-real: got '${message}', expected an error that names 75")
endif()

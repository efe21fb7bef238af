# Converts SHALE_CUDA_ARCHITECTURES to a list of GPU architectures for the CUDA kernels.

# shale_cuda_architectures(<out> <nvcc> <gpus of this machine> <architecture>...)
#
# `auto` becomes machine code for A100, H100 and H200, and PTX for later GPUs. It also becomes
# machine code for GPUs of this machine (such as "8.9;10.0") of other families: a GPU of 8.9 runs
# code for 8.0, but for one of 10.0 the driver would have to compile PTX. `all` becomes every family
# that this nvcc knows, and those members of families that gain from separate code. Other values are
# unchanged.
function(shale_cuda_architectures out nvcc gpus)
  set(architectures ${ARGN})
  if(architectures STREQUAL "auto" OR architectures STREQUAL "all")
    execute_process(COMMAND ${nvcc} --list-gpu-code OUTPUT_VARIABLE known)
    string(REGEX MATCHALL "sm_[0-9]+" known "${known}")
    set(wanted 80 90)
    if(architectures STREQUAL "all")
      set(wanted 75 80 86 89 90 100 120)
    endif()
    foreach(capability IN LISTS gpus)
      string(REPLACE "." "" gpu "${capability}")
      if(gpu LESS 75)
        message(STATUS "No kernels for this machine's GPU of compute capability ${capability}: "
                       "expected 7.5 or later")
      endif()
      math(EXPR family "${gpu} / 10")
      list(TRANSFORM wanted REPLACE ".$" "" OUTPUT_VARIABLE families)
      if(NOT family IN_LIST families AND gpu GREATER_EQUAL 75)
        list(APPEND wanted ${gpu})
      endif()
    endforeach()
    set(architectures)
    foreach(number IN LISTS wanted)
      if(sm_${number} IN_LIST known)
        list(APPEND architectures ${number}-real)
      else()
        message(STATUS "No machine code for compute capability ${number}, which ${nvcc} does not "
                       "know: the driver of such a GPU compiles PTX")
      endif()
    endforeach()
    list(APPEND architectures 80-virtual)
  endif()
  foreach(architecture IN LISTS architectures)
    if(architecture MATCHES "^([0-9]+)" AND CMAKE_MATCH_1 LESS 75)
      message(FATAL_ERROR "SHALE_CUDA_ARCHITECTURES: ${architecture}, expected 75 or later: earlier GPUs "
                          "lack the tensor-core instructions (16 x 8 x 8) that the kernels use")
    endif()
  endforeach()
  set(${out} ${architectures} PARENT_SCOPE)
endfunction()

# shale_gpus_here(<out>): gets the compute capabilities of this machine's GPUs, such as "8.9;9.0".
# The list is empty without a driver.
function(shale_gpus_here out)
  set(${out} "" PARENT_SCOPE)
  find_program(SHALE_NVIDIA_SMI nvidia-smi)
  mark_as_advanced(SHALE_NVIDIA_SMI)
  if(NOT SHALE_NVIDIA_SMI)
    return()
  endif()
  execute_process(COMMAND ${SHALE_NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
    OUTPUT_VARIABLE text RESULT_VARIABLE result ERROR_QUIET)
  if(result EQUAL 0)
    string(REGEX MATCHALL "[0-9]+[.][0-9]" capabilities "${text}")
    list(REMOVE_DUPLICATES capabilities)
    set(${out} ${capabilities} PARENT_SCOPE)
  endif()
endfunction()

# cmake -DNVCC=<nvcc> -DCCBIN=<C++ compiler> -DROOT=<tree> -DINCLUDE=<folder of include paths>
#       -DSCRATCH=<folder> -P turing.cmake
# Compiles kernels for compute capability 7.5, which builds include only on request. These are GEMM
# and attention, which have special instructions and tiles for 7.5, and kernels that pack elements.

cmake_minimum_required(VERSION 3.25)
execute_process(COMMAND ${NVCC} --list-gpu-code OUTPUT_VARIABLE known)
if(NOT known MATCHES "sm_75")
  message("skipped: ${NVCC} does not know compute capability 7.5")
  return()
endif()
file(MAKE_DIRECTORY ${SCRATCH})
foreach(file gemm/gemm_f16 gemm/gemm_bf16 attention/attention_fwd_f16 elementwise/elementwise)
  cmake_path(GET file FILENAME name)
  execute_process(
    COMMAND ${NVCC} -std=c++20 -O3 --expt-relaxed-constexpr -fmad=false -Werror=all-warnings -DSHALE_TURING
            -ccbin=${CCBIN} -I${INCLUDE} -gencode=arch=compute_75,code=sm_75
            -cubin -o ${SCRATCH}/${name}.cubin ${ROOT}/kernels/cuda/${file}.cu
    RESULT_VARIABLE result ERROR_VARIABLE message)
  if(NOT result EQUAL 0)
    message(SEND_ERROR "${file}.cu does not compile for 7.5:\n${message}")
  endif()
endforeach()

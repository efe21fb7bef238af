# cmake -DSCRATCH=<folder> -DNVCC=<nvcc> -DCCBIN=<compiler> -P kernel_resources_can_fail.cmake
# Shows that the check of kernel resources finds a kernel with a stack frame and one that spills.
# This also shows that ptxas still writes what the check looks for.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> <report>)
function(check what expected report)
  file(REMOVE_RECURSE ${SCRATCH})
  if(NOT report STREQUAL "")
    file(WRITE ${SCRATCH}/kernel.ptxas "${report}")
  endif()
  expect("${what}" "${expected}" -DREPORTS=${SCRATCH}
         -P ${CMAKE_CURRENT_LIST_DIR}/kernel_resources.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

# compile(<source> <out> <flag>...): compiles the source; <out> gets the report of ptxas -v.
function(compile source out)
  file(WRITE ${SCRATCH}/source.cu "${source}")
  execute_process(
    COMMAND ${NVCC} -ccbin=${CCBIN} -arch=sm_80 -Xptxas=-v ${ARGN} -cubin ${SCRATCH}/source.cu
            -o ${SCRATCH}/source.cubin
    RESULT_VARIABLE result
    ERROR_VARIABLE report)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "nvcc: ${report}")
  endif()
  set(${out} "${report}" PARENT_SCOPE)
endfunction()

compile("__global__ void add(float* x) { x[threadIdx.x] += 1; }\n" report)
check("a kernel in registers" OK "${report}")

compile("__global__ void pick(const int* i, float* x) {
  float own[500];
  for (int k = 0; k < 500; ++k) own[k] = x[k];
  for (int k = 0; k < 500; ++k) x[k] = own[i[k]];
}
" report)
check("a kernel with a stack frame" "sm_80: [1-9][0-9]* bytes stack frame, 0 bytes spill stores"
      "${report}")

compile("__global__ void many(float* x) {
  float own[48];
#pragma unroll
  for (int k = 0; k < 48; ++k) own[k] = x[k * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int k = 0; k < 48; ++k) x[k * 1024 + threadIdx.x] = own[47 - k];
}
" report -maxrregcount=24)
check("a kernel that spills" "[1-9][0-9]* bytes spill stores" "${report}")

check("serialised tensor-core instructions" "C7510"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'
ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized
ptxas info    : Used 10 registers
")
check("no kernel" "no kernel in the reports" "ptxas info    : 0 bytes gmem\n")
check("no report" "no ptxas reports" "")

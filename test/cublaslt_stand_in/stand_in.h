#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

namespace shale::test {

// A GEMM d = op(a) op(b) + ... as the caller describes it to the library.
struct LtGemm {
  cublasOperation_t a_operation = CUBLAS_OP_N, b_operation = CUBLAS_OP_N;
  cudaDataType_t a = CUDA_R_32F, b = CUDA_R_32F, d = CUDA_R_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  int64_t m = 0, n = 0, k = 0;
  const void *a_scale = nullptr, *b_scale = nullptr;
  int32_t a_scale_mode = 0, sms = 0;
  bool fast = false;
};

// State of the stand-in, which tests read and change.
struct LtState {
  int arch = 89;  // compute capability of the GPU
  size_t version = 130100;
  bool has_algorithms = true;
  int heuristics = 0, gemms = 0;  // numbers of calls that succeeded
  LtGemm last = {};               // the last GEMM that ran
  std::string said = {};          // why the last call was refused, in words
};

}  // namespace shale::test

#pragma once

#include <cublasLt.h>

namespace shale::kernels::cuda::cublaslt {

// The functions of cuBLASLt. The library has half a gigabyte, so it is loaded at first use and
// never linked, so that programs start without it. Types come from the library's header.
struct Library {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtGetVersion) get_version;
  decltype(&::cublasLtGetStatusString) get_status_string;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
};

// Returns the library; null if it cannot be loaded, which is logged once. SHALE_CUBLASLT in the
// environment names another file to load, or is "off".
const Library* library();

// Returns library(), but throws UnavailableError instead of returning null. The message names `op`
// and says what was tried.
const Library& required_library(const char* op = "gemm");

// Throws OutOfMemoryError, UnavailableError or InternalError for any result but success. `what` is
// the name of the call: "cublasLtMatmul".
void check(cublasStatus_t result, const char* what);

}  // namespace shale::kernels::cuda::cublaslt

#pragma once

#include <cublasLt.h>

namespace shale::kernels::cuda::cublaslt {

// The functions of NVIDIA's library, which is half a gigabyte: loaded when first asked for, never
// linked, so that programs start without it. Each has the type that the library's header gives it.
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

// Null where the library cannot be loaded; the log then says so, once. SHALE_CUBLASLT in the
// environment names another file to load, or "off".
const Library* library();

// As above, but throws UnavailableError that says what was tried.
const Library& required_library();

// Throws OutOfMemoryError, UnavailableError or InternalError for any result but success. `what` is
// the call, as in "cublasLtMatmul".
void check(cublasStatus_t result, const char* what);

}  // namespace shale::kernels::cuda::cublaslt

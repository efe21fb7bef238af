#pragma once

#include <memory>

#include "shale/base/dtype.h"
#include "shale/kernels/cuda/gemm/cublaslt/library.h"

// RAII owners of cuBLASLt objects.
namespace shale::kernels::cuda::cublaslt {

inline cudaDataType_t data_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16: return CUDA_R_16BF;
    case DType::kF16: return CUDA_R_16F;
    default: return CUDA_R_32F;
  }
}

template <typename Object>
using Owner = std::unique_ptr<Object, void (*)(Object*)>;
using Desc = Owner<cublasLtMatmulDescOpaque_t>;
using Layout = Owner<cublasLtMatrixLayoutOpaque_t>;
using Preference = Owner<cublasLtMatmulPreferenceOpaque_t>;

inline Desc make_desc(cublasComputeType_t type = CUBLAS_COMPUTE_32F) {
  cublasLtMatmulDesc_t desc = nullptr;
  check(required_library().desc_create(&desc, type, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  return {desc, [](cublasLtMatmulDesc_t d) { required_library().desc_destroy(d); }};
}

inline Layout make_layout(cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld) {
  cublasLtMatrixLayout_t layout = nullptr;
  check(required_library().layout_create(&layout, type, static_cast<uint64_t>(rows),
                                         static_cast<uint64_t>(cols), ld),
        "cublasLtMatrixLayoutCreate");
  return {layout, [](cublasLtMatrixLayout_t l) { required_library().layout_destroy(l); }};
}

inline Preference make_preference() {
  cublasLtMatmulPreference_t preference = nullptr;
  check(required_library().preference_create(&preference), "cublasLtMatmulPreferenceCreate");
  return {preference,
          [](cublasLtMatmulPreference_t p) { required_library().preference_destroy(p); }};
}

template <typename T>
void set(const Desc& desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
  check(required_library().desc_set(desc.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulDescSetAttribute");
}
template <typename T>
void set(const Preference& preference, cublasLtMatmulPreferenceAttributes_t attribute,
         const T& value) {
  check(required_library().preference_set(preference.get(), attribute, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

}  // namespace shale::kernels::cuda::cublaslt

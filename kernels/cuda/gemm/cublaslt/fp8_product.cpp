#include "shale/kernels/cuda/gemm/cublaslt/fp8_product.h"

#include <memory>

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/gemm/cublaslt/objects_internal.h"

// The library computes c^T = b a^T with column-major matrices, see matmul.cpp. Both operands have
// their lines along k, as the library requires.
namespace shale::kernels::cuda::cublaslt {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// CUBLASLT_MATMUL_DESC_A_SCALE_MODE, ..._B_..., CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F: headers
// before CUDA 12.9 do not define all of them.
constexpr auto kScaleModeA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto kScaleModeB = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr int32_t kScaleOf128 = 4;

struct Product {
  Desc desc;
  Layout a, b, c;
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
};

Layout codes_layout(const Fp8Operand& operand) {
  const cudaDataType_t type = operand.format == Fp8Format::kE5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
  return make_layout(type, operand.length(), operand.lines(), operand.codes.stride(0));
}

// Returns whether the library supports the operand's scales: one per tensor, or one per 128 numbers
// of a line, which also represents squares.
bool set_scale_mode(const Desc& desc, cublasLtMatmulDescAttributes_t mode,
                    const Fp8Operand& operand) {
  if (operand.blocks == Fp8Blocks::kTensor) return true;
  if (operand.scales.stride(0) != operand.lines()) return false;
  return required_library().desc_set(desc.get(), mode, &kScaleOf128, sizeof(kScaleOf128)) ==
         CUBLAS_STATUS_SUCCESS;
}

// Returns whether the library has an algorithm, and sets it.
bool find_algorithm(Product& product) {
  const Preference preference = make_preference();
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = required_library().heuristic(
      product.handle, product.desc.get(), product.b.get(), product.a.get(), product.c.get(),
      product.c.get(), preference.get(), 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) return false;
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  product.algorithm = result.algo;
  return found > 0 && result.state == CUBLAS_STATUS_SUCCESS;
}

}  // namespace

std::function<void(const Fp8GemmArgs&)> fp8_product(const Exec& exec, const Fp8GemmArgs& like) {
  const auto product = std::make_shared<Product>(Product{
      .desc = make_desc(),
      .a = codes_layout(like.a),
      .b = codes_layout(like.b),
      .c = make_layout(data_type(like.c.dtype), like.c.size(1), like.c.size(0), like.c.stride(0))});
  set(product->desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  if (!set_scale_mode(product->desc, kScaleModeA, like.b) ||
      !set_scale_mode(product->desc, kScaleModeB, like.a)) {
    return nullptr;
  }
  check(required_library().create(&product->handle), "cublasLtCreate");  // never destroyed
  if (!find_algorithm(*product)) return nullptr;
  return [product, exec](const Fp8GemmArgs& args) {
    set(product->desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.b.scales.data);
    set(product->desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.a.scales.data);
    const float one = 1, factor = args.accumulate ? 1.0f : 0.0f;
    void* const workspace = scratch_bytes("fp8_gemm", exec, kWorkspaceBytes);
    check(required_library().matmul(product->handle, product->desc.get(), &one, args.b.codes.data,
                                    product->b.get(), args.a.codes.data, product->a.get(), &factor,
                                    args.c.data, product->c.get(), args.c.data, product->c.get(),
                                    &product->algorithm, workspace, kWorkspaceBytes,
                                    static_cast<cudaStream_t>(exec.stream)),
          "cublasLtMatmul");
  };
}

}  // namespace shale::kernels::cuda::cublaslt

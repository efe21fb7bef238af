#include "shale/kernels/cuda/gemm/cublaslt/matmul.h"

#include <array>
#include <compare>
#include <map>
#include <mutex>
#include <optional>

#include "shale/base/error.h"
#include "shale/base/reserved_sms.h"
#include "shale/kernels/check.h"
#include "shale/kernels/cuda/gemm/cublaslt/objects_internal.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/gemm_plan.h"

// cuBLASLt's matrices are column-major. A row-major c [m, n] is a column-major [n, m], so cuBLASLt
// computes c^T = b^T a^T: its first operand is our b, and its bias runs along our columns. On
// compute capabilities 8.9, 9.0 and 12.x it requires of fp8 operands that the first is transposed
// and the second is not. Ours are, because the lines of both run along k.
namespace shale::kernels::cuda::cublaslt {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;

// How an fp8 operand is multiplied by its scales (cublasLtMatmulMatrixScale_t): one f32 number, or
// since version 12.9 one for each 128 numbers along k. Headers of earlier versions lack these
// names.
constexpr int32_t kScaleOfTensor = 0, kScaleOf128 = 4;
constexpr auto kScaleModeA = static_cast<cublasLtMatmulDescAttributes_t>(31);
constexpr auto kScaleModeB = static_cast<cublasLtMatmulDescAttributes_t>(32);
constexpr size_t kFirstWithScaleModes = 120900;

// Everything besides the device that the choice of an algorithm depends on.
struct Key {
  int device = 0;
  int64_t m = 0, n = 0, k = 0, lda = 0, ldb = 0, ldc = 0, ld_residual = 0;
  cudaDataType_t a_type = CUDA_R_32F, b_type = CUDA_R_32F;
  // in: dtype of the operands, or of the bias of an fp8 GEMM
  DType in = DType::kF32, out = DType::kF32;
  int32_t a_scale = kScaleOfTensor, b_scale = kScaleOfTensor;
  bool a_transposed = false, b_transposed = false, bias = false, residual = false;
  Epilogue epilogue = Epilogue::kNone;
  bool aux = false, bias_grad = false, tf32 = false;
  int64_t ld_aux = 0;
  int32_t sms = 0;  // 0: all of the GPU
  uint32_t a_alignment = 0, b_alignment = 0, c_alignment = 0, residual_alignment = 0;  // in bytes

  friend auto operator<=>(const Key&, const Key&) = default;
};

// Returns the alignment in bytes, at most 16, which is all that the library's kernels use for
// loads.
uint32_t alignment(const Matrix& matrix) {
  const auto address = reinterpret_cast<uintptr_t>(matrix.data);
  for (uint32_t bytes = 16; bytes > 1; bytes /= 2) {
    if (address % bytes == 0) return bytes;
  }
  return 1;
}

// Returns ld, but at least 1: the library requires ld to be at least the length of a line.
int64_t valid_ld(const Matrix& matrix) {
  return std::max<int64_t>(matrix.ld, 1);
}

Key key_of(int device, const GemmProblem& p) {
  Key key = {.device = device,
             .m = p.m,
             .n = p.n,
             .k = p.k,
             .lda = valid_ld(p.a),
             .ldb = valid_ld(p.b),
             .ldc = valid_ld(p.c),
             .a_type = data_type(p.a.dtype),
             .b_type = data_type(p.a.dtype),
             .in = p.a.dtype,
             .out = p.c.dtype,
             .tf32 = p.tf32};
  key.a_transposed = p.a.transposed, key.b_transposed = p.b.transposed;
  key.a_alignment = alignment(p.a), key.b_alignment = alignment(p.b);
  key.c_alignment = key.residual_alignment = alignment(p.c);
  key.ld_residual = key.ldc;
  key.bias = p.bias.data != nullptr;
  key.epilogue = p.epilogue;
  key.bias_grad = p.bias_grad.data != nullptr;
  if (p.aux.data != nullptr) key.aux = true, key.ld_aux = valid_ld(p.aux);
  if (p.residual.data != nullptr) {
    key.residual = true;
    key.ld_residual = valid_ld(p.residual);
    key.residual_alignment = alignment(p.residual);
  }
  return key;
}

// ---- A prepared matmul ----

struct Product {
  Desc desc;
  Layout a, b, residual, c;
  std::optional<cublasLtMatmulAlgo_t> algorithm;  // empty: the library has no algorithm
};

cublasLtEpilogue_t epilogue_of(const Key& key) {
  if (key.epilogue == Epilogue::kDGeluTanh) {
    return key.bias_grad ? CUBLASLT_EPILOGUE_DGELU_BGRAD : CUBLASLT_EPILOGUE_DGELU;
  }
  if (key.epilogue == Epilogue::kNone) {
    return key.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
  }
  if (key.aux) return key.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  return key.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
}

Desc describe(const Key& key) {
  Desc desc = make_desc(key.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F);
  const auto operation = [](bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; };
  set(desc, CUBLASLT_MATMUL_DESC_TRANSA, operation(key.b_transposed));
  set(desc, CUBLASLT_MATMUL_DESC_TRANSB, operation(key.a_transposed));
  const cublasLtEpilogue_t epilogue = epilogue_of(key);
  if (epilogue != CUBLASLT_EPILOGUE_DEFAULT) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
  if (key.bias || key.bias_grad) {
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, data_type(key.in));
  }
  if (key.aux) set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key.ld_aux);
  if (key.sms > 0) set(desc, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, key.sms);
  if (key.b_scale != kScaleOfTensor) set(desc, kScaleModeA, key.b_scale);
  if (key.a_scale != kScaleOfTensor) set(desc, kScaleModeB, key.a_scale);
  return desc;
}

Preference preference_of(const Key& key) {
  Preference preference = make_preference();
  set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, key.b_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, key.a_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, key.residual_alignment);
  set(preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, key.c_alignment);
  // Partial sums of split-K stay f32, and a separate pass adds them in order.
  const uint32_t reductions =
      CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
  return preference;
}

// A GEMM with its key, and the scales of fp8 operands (null for other operands).
struct Call {
  Key key;
  GemmProblem p;
  const void *a_scales = nullptr, *b_scales = nullptr;
};

void set_scales(const Desc& desc, const Call& call) {
  if (call.a_scales == nullptr) return;
  set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, call.b_scales);
  set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, call.a_scales);
}

Product prepare(cublasLtHandle_t handle, const Call& call) {
  const Key& key = call.key;
  const auto layout = [](cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld,
                         bool transposed) {
    return transposed ? make_layout(type, rows, cols, ld) : make_layout(type, cols, rows, ld);
  };
  Product product = {.desc = describe(key),
                     .a = layout(key.a_type, key.m, key.k, key.lda, key.a_transposed),
                     .b = layout(key.b_type, key.k, key.n, key.ldb, key.b_transposed),
                     .residual = layout(data_type(key.out), key.m, key.n, key.ld_residual, false),
                     .c = layout(data_type(key.out), key.m, key.n, key.ldc, false),
                     .algorithm = std::nullopt};
  set_scales(product.desc, call);
  const Preference preference = preference_of(key);
  cublasLtMatmulHeuristicResult_t result{};
  int found = 0;
  const cublasStatus_t status = required_library().heuristic(
      handle, product.desc.get(), product.b.get(), product.a.get(), product.residual.get(),
      product.c.get(), preference.get(), 1, &result, &found);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED || status == CUBLAS_STATUS_INVALID_VALUE) {
    return product;
  }
  check(status, "cublasLtMatmulAlgoGetHeuristic");
  if (found > 0 && result.state == CUBLAS_STATUS_SUCCESS) product.algorithm = result.algo;
  return product;
}

// The process's handles and matmuls, made at first use. They are never destroyed, because at the
// end of a program the driver may already be unloaded.
struct Cache {
  std::mutex mutex;
  std::map<int, cublasLtHandle_t> handles;
  std::map<Key, Product> products;

  cublasLtHandle_t handle(int device) {
    cublasLtHandle_t& made = handles[device];
    if (made == nullptr) check(required_library().create(&made), "cublasLtCreate");
    return made;
  }
  Product& product(const Call& call) {
    const auto known = products.find(call.key);
    if (known != products.end()) return known->second;
    Product made = prepare(handle(call.key.device), call);
    return products.emplace(call.key, std::move(made)).first->second;
  }
};

Cache& cache() {
  static auto& the_one = *new Cache;
  return the_one;
}

Call call_of(const Exec& exec, const GemmProblem& p) {
  Call call = {.key = key_of(exec.device.index, p), .p = p};
  // In every run, collectives are in flight during the same host calls, so that every run chooses
  // the same algorithms.
  if (exec.held != nullptr && exec.held->most() > 0) call.key.sms = sms_of(exec);
  return call;
}

// Returns an fp8 GEMM as a call. Returns nothing if cuBLASLt cannot read its block scales: it needs
// dense scales, one for each 128 numbers along k. Scales of square blocks have this layout too.
// cuBLASLt requires a k that is a multiple of 16; it can be rounded up to one, because the codes
// after the end of a line are 0 up to the next multiple of 16.
std::optional<Call> call_of(const Exec& exec, const Fp8GemmArgs& args) {
  for (const Fp8Operand* operand : {&args.a, &args.b}) {
    if (operand->blocks == Fp8Blocks::kTensor) continue;
    if (required_library().get_version() < kFirstWithScaleModes) return std::nullopt;
    if (operand->scales.stride(0) != operand->lines()) return std::nullopt;
  }
  GemmProblem p = gemm_problem(bf16_product(args, nullptr, nullptr));
  p.k = fp8_codes_stride(p.k);
  const auto place = [](Matrix& matrix, const View& codes, bool transposed) {
    matrix.data = codes.data, matrix.ld = codes.stride(0);
    // strides do not show the layout of a matrix with one row or column
    matrix.transposed = transposed;
  };
  place(p.a, args.a.codes, false);
  place(p.b, args.b.codes, true);
  Call call = call_of(exec, p);
  const auto type = [](const Fp8Operand& operand) {
    return operand.format == Fp8Format::kE5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
  };
  const auto scale = [](const Fp8Operand& operand) {
    return operand.blocks == Fp8Blocks::kTensor ? kScaleOfTensor : kScaleOf128;
  };
  call.key.a_type = type(args.a), call.key.b_type = type(args.b);
  call.key.a_scale = scale(args.a), call.key.b_scale = scale(args.b);
  call.a_scales = args.a.scales.data, call.b_scales = args.b.scales.data;
  return call;
}

bool run(const Exec& exec, const Call& call) {
  const auto& [key, p, a_scales, b_scales] = call;
  Cache& known = cache();
  const std::lock_guard lock(known.mutex);
  Product& product = known.product(call);
  if (!product.algorithm) return false;
  set_scales(product.desc, call);
  if (key.bias || key.bias_grad) {  // forward has a bias, backward a bias gradient
    const void* bias = key.bias ? p.bias.data : p.bias_grad.data;
    set(product.desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
  }
  if (key.aux) {
    const void* aux = p.aux.data;
    set(product.desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux);
  }
  const void* added = p.residual.data != nullptr ? p.residual.data : p.c.data;
  const float one = 1, factor = p.residual.data != nullptr || p.accumulate ? 1.0f : 0.0f;
  void* workspace = scratch_bytes("gemm", exec, kWorkspaceBytes);
  check(required_library().matmul(known.handle(key.device), product.desc.get(), &one, p.b.data,
                                  product.b.get(), p.a.data, product.a.get(), &factor, added,
                                  product.residual.get(), p.c.data, product.c.get(),
                                  &*product.algorithm, workspace, kWorkspaceBytes,
                                  static_cast<cudaStream_t>(exec.stream)),
        "cublasLtMatmul");
  return true;
}

}  // namespace

bool is_plain(const GemmProblem& p) {
  return p.epilogue == Epilogue::kNone && p.m > 0 && p.n > 0 && p.k > 0;
}

bool matmul(const Exec& exec, const GemmProblem& p) {
  const bool known_epilogue = p.epilogue == Epilogue::kNone || p.epilogue == Epilogue::kGeluTanh ||
                              p.epilogue == Epilogue::kDGeluTanh;
  return known_epilogue && run(exec, call_of(exec, p));
}

bool has_algorithm(const Exec& exec, const Fp8GemmArgs& args) {
  const std::optional<Call> call = call_of(exec, args);
  if (!call) return false;
  const std::lock_guard lock(cache().mutex);
  return cache().product(*call).algorithm.has_value();
}

bool matmul(const Exec& exec, const Fp8GemmArgs& args) {
  const std::optional<Call> call = call_of(exec, args);
  return call && run(exec, *call);
}

}  // namespace shale::kernels::cuda::cublaslt

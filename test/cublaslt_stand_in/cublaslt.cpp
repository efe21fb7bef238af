// A libcublasLt for machines without GPUs. It computes GEMMs in f64 in host memory. It refuses what
// the library's header and manual forbid, and says why. The manual's rules for fp8
// (cublasLtMatmul()): sums and scales in f32, the first operand transposed and the second not,
// pointers and lines of matrices at multiples of 16 bytes, at most one operand in E5M2, and a bias
// in bf16. Error texts of version 13.1 imply two more rules: m and k must be multiples of some
// number, and block scales need a pointer before an algorithm is requested.
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/base/error.h"
#include "shale/kernels/fp8_number.h"
#include "stand_in.h"

namespace shale::test {
namespace {

LtState state;

struct Refused : std::runtime_error {
  Refused(cublasStatus_t code, const std::string& why) : std::runtime_error(why), status(code) {}
  cublasStatus_t status;
};
void want(bool holds, const std::string& what, cublasStatus_t code = CUBLAS_STATUS_INVALID_VALUE) {
  if (!holds) throw Refused(code, what);
}

template <typename Fn>
cublasStatus_t answer(const Fn& fn) {
  try {
    fn();
    return CUBLAS_STATUS_SUCCESS;
  } catch (const Refused& refused) {
    state.said = refused.what();
    return refused.status;
  }
}

// ---- Descriptors ----

struct Layout {
  cudaDataType_t type;
  int64_t rows, cols, ld;
  friend bool operator==(const Layout&, const Layout&) = default;
};

// Attributes and their values. The sizes of values are those in the header.
struct Attributes {
  std::map<int, std::vector<char>> values;

  void set(const std::map<int, size_t>& sizes, int name, const void* from, size_t bytes) {
    const auto known = sizes.find(name);
    want(known != sizes.end(), cat("the stand-in has no attribute ", name));
    want(from != nullptr && bytes == known->second, cat("attribute ", name, " has another size"));
    values[name].assign(static_cast<const char*>(from), static_cast<const char*>(from) + bytes);
  }
  template <typename T>
  T get(int name, T otherwise) const {
    const auto found = values.find(name);
    if (found == values.end()) return otherwise;
    T value;
    std::memcpy(&value, found->second.data(), sizeof(T));
    return value;
  }
};
struct Desc : Attributes {
  cublasComputeType_t compute;
  cudaDataType_t scale;
};

const std::map<int, size_t> kDescSizes = {{CUBLASLT_MATMUL_DESC_TRANSA, 4},
                                          {CUBLASLT_MATMUL_DESC_TRANSB, 4},
                                          {CUBLASLT_MATMUL_DESC_EPILOGUE, 4},
                                          {CUBLASLT_MATMUL_DESC_BIAS_POINTER, 8},
                                          {CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 4},
                                          {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, 8},
                                          {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, 8},
                                          {CUBLASLT_MATMUL_DESC_FAST_ACCUM, 1},
                                          {CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, 4},
                                          {/* A_SCALE_MODE */ 31, 4},
                                          {/* B_SCALE_MODE */ 32, 4}};
const std::map<int, size_t> kPreferenceSizes = {{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 8},
                                                {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, 4},
                                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 4},
                                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 4},
                                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, 4},
                                                {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 4}};

template <typename Mine, typename Theirs>
Mine& mine(Theirs* theirs) {
  want(theirs != nullptr, "a descriptor is null");
  return *reinterpret_cast<Mine*>(theirs);
}

// ---- Rules ----

bool is_fp8(cudaDataType_t type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}
int64_t bytes_of(cudaDataType_t type) {
  if (is_fp8(type)) return 1;
  want(type == CUDA_R_16BF || type == CUDA_R_16F || type == CUDA_R_32F,
       cat("the stand-in has no type ", static_cast<int>(type)), CUBLAS_STATUS_NOT_SUPPORTED);
  return type == CUDA_R_32F ? 4 : 2;
}

struct Matrices {
  Layout a, b, c, d;
};

void check_fp8(const Desc& desc, const LtGemm& gemm, const Matrices& in) {
  const auto rule = [](bool holds, const std::string& what) {
    want(holds, cat("fp8: ", what), CUBLAS_STATUS_NOT_SUPPORTED);
  };
  rule(state.arch >= 89, "the GPU has no fp8");
  rule(is_fp8(gemm.a) && is_fp8(gemm.b), "both operands are fp8");
  rule(gemm.a != CUDA_R_8F_E5M2 || gemm.b != CUDA_R_8F_E5M2, "both operands are E5M2");
  rule(desc.compute == CUBLAS_COMPUTE_32F && desc.scale == CUDA_R_32F, "sums and scales are f32");
  rule(gemm.a_operation == CUBLAS_OP_T && gemm.b_operation == CUBLAS_OP_N,
       "the first operand is transposed and the second is not");
  rule(gemm.k % 16 == 0 && in.a.ld % 16 == 0 && in.b.ld % 16 == 0, "k is a multiple of 16");
  const int64_t bytes = bytes_of(gemm.d);
  rule(gemm.m % 16 == 0, "m is a multiple of 16");
  rule(in.c.ld * bytes % 16 == 0 && in.d.ld * bytes % 16 == 0,
       "lines of c and d are multiples of 16 bytes");
  rule(!is_fp8(gemm.d), "the stand-in has no fp8 results");
  const bool bias = gemm.epilogue == CUBLASLT_EPILOGUE_BIAS;
  rule(!bias || desc.get<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, gemm.d) ==
                    (gemm.d == CUDA_R_16F ? CUDA_R_16F : CUDA_R_16BF),
       "the bias is bf16");
  for (const int mode : {31, 32}) {
    if (desc.get<int32_t>(mode, 0) == 0) continue;
    rule(state.arch == 90 && state.version >= 120900, "scales are of tensors");
    want((mode == 31 ? gemm.a_scale : gemm.b_scale) != nullptr, "scales of blocks are null");
  }
}

// Checks a GEMM against the rules and returns its operands.
LtGemm checked(const Desc& desc, const Matrices& in) {
  LtGemm gemm = {.a = in.a.type, .b = in.b.type, .d = in.d.type};
  gemm.a_operation = desc.get(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_N);
  gemm.b_operation = desc.get(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  gemm.epilogue = desc.get(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
  gemm.m = in.d.rows, gemm.n = in.d.cols;
  const bool a_turned = gemm.a_operation == CUBLAS_OP_T, b_turned = gemm.b_operation == CUBLAS_OP_T;
  gemm.k = a_turned ? in.a.rows : in.a.cols;
  want((a_turned ? in.a.cols : in.a.rows) == gemm.m && (b_turned ? in.b.rows : in.b.cols) == gemm.n,
       "operands have the sizes of d");
  want((b_turned ? in.b.cols : in.b.rows) == gemm.k, "operands have the same k");
  want(in.c.rows == gemm.m && in.c.cols == gemm.n && in.c.type == in.d.type, "c is like d");
  for (const Layout* one : {&in.a, &in.b, &in.c, &in.d}) {
    want(one->ld >= one->rows, "columns do not overlap");
  }
  want(gemm.epilogue == CUBLASLT_EPILOGUE_DEFAULT || gemm.epilogue == CUBLASLT_EPILOGUE_BIAS,
       "the stand-in has no such epilogue", CUBLAS_STATUS_NOT_SUPPORTED);
  gemm.a_scale = desc.get<const void*>(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, nullptr);
  gemm.b_scale = desc.get<const void*>(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, nullptr);
  gemm.a_scale_mode = desc.get<int32_t>(31, 0);
  gemm.fast = desc.get<int8_t>(CUBLASLT_MATMUL_DESC_FAST_ACCUM, 0) != 0;
  gemm.sms = desc.get<int32_t>(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, 0);
  if (is_fp8(gemm.a) || is_fp8(gemm.b)) {
    check_fp8(desc, gemm, in);
  } else {
    want(gemm.a_scale == nullptr && gemm.b_scale == nullptr, "only fp8 operands have scales");
  }
  return gemm;
}

// Returns an algorithm that contains a hash of the problem. A later call checks with it that the
// algorithm fits.
cublasLtMatmulAlgo_t algorithm_for(const LtGemm& gemm, const Matrices& in) {
  const std::array<int64_t, 16> parts = {
      gemm.a_operation, gemm.b_operation, gemm.epilogue, gemm.sms, gemm.a_scale_mode,
      gemm.m,           gemm.n,           gemm.k,        gemm.a,   gemm.b,
      gemm.d,           in.a.ld,          in.b.ld,       in.c.ld,  in.d.ld,
      gemm.fast};
  cublasLtMatmulAlgo_t algorithm{};
  algorithm.data[0] = 1;
  for (const int64_t part : parts) {
    algorithm.data[1] = (algorithm.data[1] ^ static_cast<uint64_t>(part)) * 0x100000001b3u + 7;
  }
  return algorithm;
}

// ---- Arithmetic ----

double number_at(const void* data, cudaDataType_t type, int64_t i) {
  const auto read = [&]<typename T>(T) {
    T value;
    std::memcpy(&value, static_cast<const char*>(data) + i * int64_t{sizeof(T)}, sizeof(T));
    return value;
  };
  switch (type) {
    case CUDA_R_8F_E4M3: return kernels::decoded(read(kernels::e4m3()));
    case CUDA_R_8F_E5M2: return kernels::decoded(read(kernels::e5m2()));
    case CUDA_R_16BF: return to_f32(read(bf16()));
    case CUDA_R_16F: return to_f32(read(f16()));
    default: return read(float());
  }
}
void store(void* data, cudaDataType_t type, int64_t i, double value) {
  const auto write = [&](auto number) {
    std::memcpy(static_cast<char*>(data) + i * int64_t{sizeof(number)}, &number, sizeof(number));
  };
  const auto single = static_cast<float>(value);
  if (type == CUDA_R_16BF) return write(bf16(single));
  if (type == CUDA_R_16F) return write(f16(single));
  write(single);
}

struct Pointers {
  const void *a, *b, *c, *bias;
  void* d;
};

void compute(const LtGemm& gemm, const Matrices& in, const Pointers& at, cudaDataType_t bias_type,
             float alpha, float beta) {
  const auto scale = [](const void* of) {
    return of == nullptr ? 1.0 : *static_cast<const float*>(of);
  };
  const double factor = alpha * scale(gemm.a_scale) * scale(gemm.b_scale);
  const auto index = [](const Layout& in_layout, bool turned, int64_t row, int64_t col) {
    return turned ? row * in_layout.ld + col : col * in_layout.ld + row;
  };
  const bool a_turned = gemm.a_operation == CUBLAS_OP_T, b_turned = gemm.b_operation == CUBLAS_OP_T;
  for (int64_t col = 0; col < gemm.n; ++col) {
    for (int64_t row = 0; row < gemm.m; ++row) {
      double sum = 0;
      for (int64_t k = 0; k < gemm.k; ++k) {
        sum += number_at(at.a, gemm.a, index(in.a, a_turned, row, k)) *
               number_at(at.b, gemm.b, index(in.b, b_turned, k, col));
      }
      sum *= factor;
      if (beta != 0) sum += beta * number_at(at.c, gemm.d, index(in.c, false, row, col));
      if (at.bias != nullptr) sum += number_at(at.bias, bias_type, row);
      store(at.d, gemm.d, index(in.d, false, row, col), sum);
    }
  }
}

}  // namespace
}  // namespace shale::test

namespace t = shale::test;

extern "C" {

t::LtState* shale_test_cublaslt_state() {
  return &t::state;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&t::state);
  return CUBLAS_STATUS_SUCCESS;
}
size_t cublasLtGetVersion() {
  return t::state.version;
}
const char* cublasLtGetStatusString(cublasStatus_t) {
  return t::state.said.c_str();
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld) {
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new t::Layout{type, static_cast<int64_t>(rows), static_cast<int64_t>(cols), ld});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<t::Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new t::Desc{.compute = compute, .scale = scale});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete reinterpret_cast<t::Desc*>(desc);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t name, const void* from,
                                              size_t bytes) {
  return t::answer([&] { t::mine<t::Desc>(desc).set(t::kDescSizes, name, from, bytes); });
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new t::Attributes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<t::Attributes*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* from, size_t bytes) {
  return t::answer(
      [&] { t::mine<t::Attributes>(preference).set(t::kPreferenceSizes, name, from, bytes); });
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int count,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  return t::answer([&] {
    *found = 0;
    const t::Matrices in = {t::mine<t::Layout>(a), t::mine<t::Layout>(b), t::mine<t::Layout>(c),
                            t::mine<t::Layout>(d)};
    const t::LtGemm gemm = t::checked(t::mine<t::Desc>(desc), in);
    const auto& preferences = t::mine<t::Attributes>(preference);
    if (t::is_fp8(gemm.a)) {
      for (const int name :
           {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
            CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
        t::want(preferences.get<uint32_t>(name, 256) >= 16, "fp8: matrices are aligned",
                CUBLAS_STATUS_NOT_SUPPORTED);
      }
    }
    t::want(t::state.has_algorithms, "no algorithm", CUBLAS_STATUS_NOT_SUPPORTED);
    t::want(count > 0 && results != nullptr, "there is room for a result");
    results[0].algo = t::algorithm_for(gemm, in);
    results[0].state = CUBLAS_STATUS_SUCCESS;
    results[0].workspaceSize = 0;
    *found = 1;
    ++t::state.heuristics;
  });
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t,
                              cudaStream_t) {
  return t::answer([&] {
    const t::Matrices in = {t::mine<t::Layout>(a_layout), t::mine<t::Layout>(b_layout),
                            t::mine<t::Layout>(c_layout), t::mine<t::Layout>(d_layout)};
    const auto& parts = t::mine<t::Desc>(desc);
    const t::LtGemm gemm = t::checked(parts, in);
    const cublasLtMatmulAlgo_t own = t::algorithm_for(gemm, in);
    t::want(algorithm != nullptr && std::memcmp(algorithm, &own, sizeof own) == 0,
            "the algorithm is for another problem");
    for (const void* pointer :
         {a, b, c, static_cast<const void*>(d), static_cast<const void*>(workspace)}) {
      t::want(pointer != nullptr &&
                  (reinterpret_cast<uintptr_t>(pointer) % 16 == 0 || !t::is_fp8(gemm.a)),
              "a pointer is null or not aligned");
    }
    const bool has_bias = gemm.epilogue == CUBLASLT_EPILOGUE_BIAS;
    const auto* const bias =
        has_bias ? parts.get<const void*>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr) : nullptr;
    t::want(!has_bias || bias != nullptr, "the bias is null");
    const auto bias_type = static_cast<cudaDataType_t>(
        parts.get<int32_t>(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, gemm.d));
    t::want(gemm.a_scale_mode == 0, "the stand-in computes no block scales",
            CUBLAS_STATUS_NOT_SUPPORTED);
    t::compute(gemm, in, {a, b, c, bias, d}, bias_type, *static_cast<const float*>(alpha),
               *static_cast<const float*>(beta));
    t::state.last = gemm;
    ++t::state.gemms;
  });
}

}  // extern "C"

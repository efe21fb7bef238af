#include "shale/kernels/cpu/gemm_epilogue.h"

#include <algorithm>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/gemm_epilogue.cpp"
#include <hwy/foreach_target.h>  // IWYU pragma: keep

#include "shale/kernels/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::cpu::HWY_NAMESPACE {
namespace {

namespace simd = ::shale::kernels::HWY_NAMESPACE;
namespace hn = hwy::HWY_NAMESPACE;
using simd::F32Tag;
using simd::F32Vec;
using simd::kF32Lanes;

// Returns v as it would be after storing it to memory of type T and loading it.
template <typename T>
HWY_INLINE F32Vec rounded_to(F32Vec v) {
  const F32Tag d;
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    T stored[kF32Lanes];
    simd::store(v, d, stored);
    return simd::load(d, stored);
  }
}

// Pointers to one row of each operand. TIn: dtype of bias and aux*; TOut: dtype of residual and c*.
template <typename TIn, typename TOut>
struct Row {
  const float* product;
  const TIn* bias;
  TIn* aux;
  TIn* aux_up;
  const TOut* residual;
  TOut* c;
  TOut* c_up;
  float* column_sums;
};

// Processes elements [j, j + count) of a row; count is kF32Lanes if kWhole.
template <Epilogue kEpilogue, bool kWhole, typename TIn, typename TOut>
HWY_INLINE void epilogue_lanes(const Row<TIn, TOut>& row, int64_t j, int64_t count) {
  const F32Tag d;
  const auto get = [&](const auto* from) HWY_ATTR {
    if constexpr (kWhole)
      return simd::load(d, from + j);
    else
      return simd::load_n(d, from + j, count);
  };
  const auto put = [&](F32Vec value, auto* to) HWY_ATTR {
    if constexpr (kWhole)
      simd::store(value, d, to + j);
    else
      simd::store_n(value, d, to + j, count);
  };
  F32Vec v = get(row.product);
  if (row.bias != nullptr) v = hn::Add(v, get(row.bias));
  if constexpr (kEpilogue == Epilogue::kGeluTanh || kEpilogue == Epilogue::kGeluErf) {
    put(v, row.aux);
    v = rounded_to<TIn>(v);
  }
  if constexpr (kEpilogue == Epilogue::kGeluTanh) v = simd::gelu_tanh(d, v);
  if constexpr (kEpilogue == Epilogue::kGeluErf) v = simd::gelu_erf(d, v);
  if constexpr (kEpilogue == Epilogue::kDGeluTanh) {
    v = hn::Mul(v, simd::dgelu_tanh(d, get(row.aux)));
  }
  if constexpr (kEpilogue == Epilogue::kDGeluErf) {
    v = hn::Mul(v, simd::dgelu_erf(d, get(row.aux)));
  }
  if constexpr (kEpilogue == Epilogue::kSwiGlu) {
    put(v, row.aux_up);
    v = hn::Mul(simd::silu(d, get(row.aux)), rounded_to<TIn>(v));
  }
  if constexpr (kEpilogue == Epilogue::kDSwiGlu) {
    const F32Vec gate = get(row.aux), up = get(row.aux_up);
    put(hn::Mul(v, simd::silu(d, gate)), row.c_up);
    v = hn::Mul(hn::Mul(v, up), simd::dsilu(d, gate));
  }
  if (row.residual != nullptr) v = hn::Add(v, get(row.residual));
  put(v, row.c);
  if (row.column_sums != nullptr) {
    put(hn::Add(get(row.column_sums), rounded_to<TOut>(v)), row.column_sums);
  }
}

template <Epilogue kEpilogue, typename TIn, typename TOut>
void epilogue_rows(const EpilogueBlock& b) {
  const auto line = [](auto* data, int64_t ld, int64_t i) {
    return data == nullptr ? nullptr : data + i * ld;
  };
  if (b.column_sums != nullptr) std::fill_n(b.column_sums, b.cols, 0.f);
  for (int64_t i = 0; i < b.rows; ++i) {
    const Row<TIn, TOut> row{
        .product = b.product + i * b.product_ld,
        .bias = static_cast<const TIn*>(b.bias.data),
        .aux = line(static_cast<TIn*>(b.aux.data), b.aux.ld, i),
        .aux_up = line(static_cast<TIn*>(b.aux_up.data), b.aux_up.ld, i),
        .residual = line(static_cast<const TOut*>(b.residual.data), b.residual.ld, i),
        .c = line(static_cast<TOut*>(b.c.data), b.c.ld, i),
        .c_up = line(static_cast<TOut*>(b.c_up.data), b.c_up.ld, i),
        .column_sums = b.column_sums};
    int64_t j = 0;
    for (; j + kF32Lanes <= b.cols; j += kF32Lanes) {
      epilogue_lanes<kEpilogue, true>(row, j, kF32Lanes);
    }
    if (j < b.cols) epilogue_lanes<kEpilogue, false>(row, j, b.cols - j);
  }
}

template <typename TIn, typename TOut>
void epilogue_kind(const EpilogueBlock& b) {
  switch (b.epilogue) {
    case Epilogue::kNone: return epilogue_rows<Epilogue::kNone, TIn, TOut>(b);
    case Epilogue::kGeluTanh: return epilogue_rows<Epilogue::kGeluTanh, TIn, TOut>(b);
    case Epilogue::kGeluErf: return epilogue_rows<Epilogue::kGeluErf, TIn, TOut>(b);
    case Epilogue::kDGeluTanh: return epilogue_rows<Epilogue::kDGeluTanh, TIn, TOut>(b);
    case Epilogue::kDGeluErf: return epilogue_rows<Epilogue::kDGeluErf, TIn, TOut>(b);
    case Epilogue::kSwiGlu: return epilogue_rows<Epilogue::kSwiGlu, TIn, TOut>(b);
    case Epilogue::kDSwiGlu: return epilogue_rows<Epilogue::kDSwiGlu, TIn, TOut>(b);
  }
}

template <typename TIn>
void epilogue_out(const EpilogueBlock& b) {
  if (b.c.dtype == DType::kF32) return epilogue_kind<TIn, float>(b);
  epilogue_kind<TIn, TIn>(b);
}

template <typename T>
void widen(const Matrix& from, int64_t lines, int64_t length, float* to) {
  const F32Tag d;
  for (int64_t i = 0; i < lines; ++i, to += length) {
    const T* line = static_cast<const T*>(from.data) + i * from.ld;
    int64_t j = 0;
    for (; j + kF32Lanes <= length; j += kF32Lanes) hn::StoreU(simd::load(d, line + j), d, to + j);
    if (j < length) simd::store_n(simd::load_n(d, line + j, length - j), d, to + j, length - j);
  }
}

void epilogue_block(DType in, const EpilogueBlock& block) {
  if (in == DType::kBF16) return epilogue_out<bf16>(block);
  if (in == DType::kF16) return epilogue_out<f16>(block);
  epilogue_out<float>(block);
}

void widen_block(const Matrix& from, int64_t lines, int64_t length, float* to) {
  if (from.dtype == DType::kBF16) return widen<bf16>(from, lines, length, to);
  if (from.dtype == DType::kF16) return widen<f16>(from, lines, length, to);
  widen<float>(from, lines, length, to);
}

}  // namespace
}  // namespace shale::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels::cpu {

HWY_EXPORT(epilogue_block);
HWY_EXPORT(widen_block);

void gemm_epilogue(DType in, const EpilogueBlock& block) {
  HWY_DYNAMIC_DISPATCH(epilogue_block)(in, block);
}

void widen_lines(const Matrix& from, int64_t lines, int64_t length, float* to) {
  HWY_DYNAMIC_DISPATCH(widen_block)(from, lines, length, to);
}

}  // namespace shale::kernels::cpu
#endif

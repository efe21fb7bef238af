#pragma once

#include "shale/kernels/cuda/elementwise/gelu.cuh"
#include "shale/kernels/cuda/elementwise/swiglu.cuh"
#include "shale/kernels/gemm_problem.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::SHALE_BACKEND {

// Consecutive columns that a thread processes at a time: 16 bytes in bf16, 32 bytes in f32.
inline constexpr int kRun = 8;

using Run = Floats<kRun>;

// The results of SwiGLU's two GEMMs for the same run of columns.
struct RunPair {
  Run gate, up;
};

// Loads a run. `whole`: the whole run is inside the matrix and may be accessed in packs; else its
// first `count` elements are accessed one by one.
template <typename T>
__device__ __forceinline__ Run load_run(const T* from, int count, bool whole) {
  Run run;
  if (whole) {
    constexpr int kPack = kPackSize<T>;
#pragma unroll
    for (int i = 0; i < kRun; i += kPack) {
      const Floats<kPack> floats = load_floats<kPack>(from + i);
#pragma unroll
      for (int e = 0; e < kPack; ++e) run.at[i + e] = floats.at[e];
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.at[i] = i < count ? to_float(from[i]) : 0.0f;
  }
  return run;
}

template <typename T>
__device__ __forceinline__ void store_run(T* to, const Run& run, int count, bool whole) {
  if (whole) {
    constexpr int kPack = kPackSize<T>;
#pragma unroll
    for (int i = 0; i < kRun; i += kPack) {
      Floats<kPack> floats;
#pragma unroll
      for (int e = 0; e < kPack; ++e) floats.at[e] = run.at[i + e];
      store_floats(to + i, floats);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (i < count) to[i] = from_float<T>(run.at[i]);
    }
  }
}

// Returns the run as it would be after storing it to memory of type T.
template <typename T>
__device__ __forceinline__ Run rounded_to(const Run& run) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return run;
  } else {
    return to_floats(from_floats<T>(run));
  }
}

template <typename T>
__device__ __forceinline__ T* element(const Matrix& matrix, int64_t row, int64_t col) {
  return static_cast<T*>(matrix.data) + row * matrix.ld + col;
}

// The epilogue for one run of a row. TIn: dtype of bias and aux, TOut: dtype of residual and c.
template <typename TIn, typename TOut>
class RunEpilogue {
 public:
  // packs: the operands in p may be accessed in packs, see GemmWork.
  __device__ __forceinline__ RunEpilogue(const GemmProblem& p, int64_t col, bool packs)
      : p_(p), col_(col), count_(p.n - col < kRun ? static_cast<int>(p.n - col) : kRun) {
    whole_ = packs && count_ == kRun;
    if (p.bias.data != nullptr && count_ > 0) bias_ = load(static_cast<const TIn*>(p.bias.data));
  }

  // Returns c before rounding, from a run of matmul results and the other operands at `row`.
  __device__ __forceinline__ Run result(Run run, int64_t row) const {
    if (p_.bias.data != nullptr) add(run, bias_);
    activate(run, row);
    if (p_.residual.data != nullptr) add(run, load(element<const TOut>(p_.residual, row, 0)));
    return run;
  }
  // Computes SwiGLU from the stored (rounded) values, which is what backward reads.
  __device__ __forceinline__ Run result(const RunPair& products, int64_t row) const {
    store_run(element<TIn>(p_.aux, row, col_), products.gate, count_, whole_);
    store_run(element<TIn>(p_.aux_up, row, col_), products.up, count_, whole_);
    Run run = rounded_to<TIn>(products.up);
    const Run gate = rounded_to<TIn>(products.gate);
    map(run, [&](float up, int i) { return silu(gate.at[i]) * up; });
    return run;
  }
  __device__ __forceinline__ void store(const Run& run, int64_t c_row) const {
    store_run(element<TOut>(p_.c, c_row, col_), run, count_, whole_);
  }

 private:
  template <typename T>
  __device__ __forceinline__ Run load(const T* line) const {
    return load_run(line + col_, count_, whole_);
  }
  static __device__ __forceinline__ void add(Run& run, const Run& other) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.at[i] += other.at[i];
  }
  template <class Fn>
  static __device__ __forceinline__ void map(Run& run, const Fn& fn) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) run.at[i] = fn(run.at[i], i);
  }

  // GELU is computed from the stored pre-activation, which is what backward reads.
  __device__ __forceinline__ void activate(Run& run, int64_t row) const {
    if (p_.epilogue == Epilogue::kNone) return;
    TIn* aux = element<TIn>(p_.aux, row, 0);
    if (p_.epilogue == Epilogue::kGeluTanh || p_.epilogue == Epilogue::kGeluErf) {
      store_run(aux + col_, run, count_, whole_);
      run = rounded_to<TIn>(run);
      if (p_.epilogue == Epilogue::kGeluTanh) {
        map(run, [](float x, int) { return gelu_tanh(x); });
      } else {
        map(run, [](float x, int) { return gelu_erf(x); });
      }
    } else if (p_.epilogue == Epilogue::kDSwiGlu) {
      differentiate_swiglu(run, row);
    } else {
      const Run saved = load(static_cast<const TIn*>(aux));
      if (p_.epilogue == Epilogue::kDGeluTanh) {
        map(run, [&](float x, int i) { return x * dgelu_tanh(saved.at[i]); });
      } else {
        map(run, [&](float x, int i) { return x * dgelu_erf(saved.at[i]); });
      }
    }
  }

  // Stores the gradient of up, and leaves the gradient of the gate in `run`.
  __device__ __forceinline__ void differentiate_swiglu(Run& run, int64_t row) const {
    const Run gate = load(element<const TIn>(p_.aux, row, 0));
    const Run up = load(element<const TIn>(p_.aux_up, row, 0));
    Run d_up;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const SwiGluGrads grads = dswiglu(gate.at[i], up.at[i], run.at[i]);
      run.at[i] = grads.gate;
      d_up.at[i] = grads.up;
    }
    store_run(element<TOut>(p_.c_up, row, col_), d_up, count_, whole_);
  }

  const GemmProblem& p_;
  int64_t col_;
  int count_;
  bool whole_;
  Run bias_{};
};

// Position of a block's tile, and what the epilogue needs besides the GemmProblem.
struct EpilogueTile {
  int64_t row = 0, row_end = 0;  // row: first row of the tile; row_end: one past its last row
  int64_t col = 0;
  int64_t c_row = 0;  // row of the output where the tile's first row goes; not `row` with split-K
  bool packs = false;            // as in GemmWork
  float* column_sums = nullptr;  // [n]: output for the tile's column sums; or null
};

// Applies the epilogue to a tile and stores it to c. A thread owns one run of columns in several
// rows. product(row, col) returns a run by its position in the tile. `scratch` is for column sums:
// kThreads * kRun floats of shared memory that is no longer used.
template <typename TIn, typename TOut, int kRows, int kCols, int kThreads, class Product>
__device__ __forceinline__ void epilogue_tile(const GemmProblem& p, const EpilogueTile& tile,
                                              float* scratch, const Product& product) {
  constexpr int kRuns = kCols / kRun;  // runs per row
  constexpr int kRowsAtOnce = kThreads / kRuns;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = thread / kRuns, col = thread % kRuns * kRun;
  const RunEpilogue<TIn, TOut> epilogue(p, tile.col + col, tile.packs);
  Run sums{};
  if (tile.col + col < p.n) {
    for (int row = first_row; row < kRows && tile.row + row < tile.row_end; row += kRowsAtOnce) {
      const Run c = epilogue.result(product(row, col), tile.row + row);
      epilogue.store(c, tile.c_row + row);
      if (tile.column_sums == nullptr) continue;
      const Run stored = rounded_to<TOut>(c);
#pragma unroll
      for (int i = 0; i < kRun; ++i) sums.at[i] += stored.at[i];
    }
  }
  if (tile.column_sums == nullptr) return;
  // The order of the additions is fixed: over a thread's rows, then over threads in row order.
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kRun; ++i) scratch[first_row * kCols + col + i] = sums.at[i];
  __syncthreads();
  for (int c = thread; c < kCols && tile.col + c < p.n; c += kThreads) {
    float sum = 0;
    for (int row = 0; row < kRowsAtOnce; ++row) sum += scratch[row * kCols + c];
    tile.column_sums[tile.col + c] = sum;
  }
}

}  // namespace shale::kernels::SHALE_BACKEND

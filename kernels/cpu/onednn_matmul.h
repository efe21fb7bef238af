#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shale/base/dtype.h"

namespace shale::kernels::cpu {

// The matmul c [m, n] = a [m, k] · b [k, n] (+ c), by oneDNN in the calling thread.
class OnednnMatmul {
 public:
  struct Spec {
    int64_t m = 0, n = 0, k = 0;        // sizes, not zero
    int64_t lda = 0, ldb = 0, ldc = 0;  // strides of rows, or of columns if transposed
    bool a_transposed = false, b_transposed = false;
    DType in = DType::kF32;   // dtype of a and b: f32, or bf16 if has_fast_bf16()
    DType out = DType::kF32;  // dtype of c: that of a, or f32
    bool accumulate = false;

    friend bool operator==(const Spec&, const Spec&) = default;
  };

  // Returns an object from a cache of the last few hundred specs. The first use of a spec may
  // compile code (0.3 ms; the first of a kind 10 ms). Thread-safe. Throws InternalError.
  static std::shared_ptr<const OnednnMatmul> get(const Spec& spec);

  // True if oneDNN has bf16 matmuls on this CPU that are faster than f32 ones.
  static bool has_fast_bf16();
  static bool has_avx512();     // true if the CPU has AVX-512 and oneDNN uses it

  ~OnednnMatmul();
  OnednnMatmul(const OnednnMatmul&) = delete;
  OnednnMatmul& operator=(const OnednnMatmul&) = delete;

  size_t scratch_bytes() const { return scratch_bytes_; }

  // Runs the matmul. `scratch` has scratch_bytes() bytes, begins at a multiple of 64, and is not
  // shared with other calls. Several threads may call run() concurrently.
  void run(const void* a, const void* b, void* c, void* scratch) const;

 private:
  struct Impl;
  explicit OnednnMatmul(const Spec& spec);

  std::unique_ptr<Impl> impl_;
  size_t scratch_bytes_ = 0;
};

}  // namespace shale::kernels::cpu

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shale/base/dtype.h"

namespace shale::kernels::cpu {

// c [m, n] = a [m, k] · b [k, n] (+ c), by oneDNN in the calling thread alone. Only the sources of
// headers called onednn_* touch oneDNN.
class OnednnMatmul {
 public:
  struct Spec {
    int64_t m = 0, n = 0, k = 0;        // none is zero
    int64_t lda = 0, ldb = 0, ldc = 0;  // distance of rows, or of columns if transposed
    bool a_transposed = false, b_transposed = false;
    DType in = DType::kF32;   // of a and b: f32, or bf16 where supports_bf16()
    DType out = DType::kF32;  // of c: like a, or f32
    bool accumulate = false;

    friend bool operator==(const Spec&, const Spec&) = default;
  };

  // From a cache that holds the last few hundred specs; made on first use, which may compile code
  // (0.3 ms, the first of a kind 10 ms). Safe to call from any thread. Throws InternalError.
  static std::shared_ptr<const OnednnMatmul> get(const Spec& spec);

  static bool supports_bf16();  // on this CPU
  static bool has_avx512();     // and uses it

  ~OnednnMatmul();
  OnednnMatmul(const OnednnMatmul&) = delete;
  OnednnMatmul& operator=(const OnednnMatmul&) = delete;

  size_t scratch_bytes() const { return scratch_bytes_; }

  // scratch: scratch_bytes(), aligned to 64, this call's alone. Any number of threads may run one
  // object at a time.
  void run(const void* a, const void* b, void* c, void* scratch) const;

 private:
  struct Impl;
  explicit OnednnMatmul(const Spec& spec);

  std::unique_ptr<Impl> impl_;
  size_t scratch_bytes_ = 0;
};

}  // namespace shale::kernels::cpu

#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "kernels/gemm.h"

namespace shale::bench {

// c [m, n] = a [m, k] · b [k, n] (+ c).
struct MatmulSpec {
  int64_t m = 0, n = 0, k = 0;
  int64_t lda = 0, ldb = 0, ldc = 0;  // distance of rows, or of columns if transposed
  bool a_transposed = false, b_transposed = false;
  DType in = DType::kF32;   // of a and b
  DType out = DType::kF32;  // of c
  bool accumulate = false;

  double flops() const { return 2.0 * double(m) * double(n) * double(k); }
  // From the first element to the last, gaps included.
  int64_t a_bytes() const;
  int64_t b_bytes() const;
  int64_t c_bytes() const;
  friend auto operator<=>(const MatmulSpec&, const MatmulSpec&) = default;
};

// The product of a call of Shale's kernel, without its epilogue.
MatmulSpec matmul_spec(const kernels::GemmArgs& args);

// oneDNN's matmul as its documentation shows it, with oneDNN's own threads: what a program gets
// that calls the library directly. None of Shale's kernels is involved. The number of threads is
// what omp_set_num_threads() said on the thread that makes and runs it.
class VendorMatmul {
 public:
  explicit VendorMatmul(const MatmulSpec& spec);  // throws UnavailableError where oneDNN cannot
  ~VendorMatmul();
  VendorMatmul(VendorMatmul&&) noexcept;
  VendorMatmul& operator=(VendorMatmul&&) noexcept;

  size_t scratch_bytes() const;
  std::string implementation() const;  // oneDNN's name for the kernel that it chose
  // scratch: scratch_bytes(), aligned to 64.
  void run(const void* a, const void* b, void* c, void* scratch) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string onednn_version();

}  // namespace shale::bench

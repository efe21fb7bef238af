#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "shale/bench/support/vendor_primitive.h"
#include "shale/runtime/kernel_check/matmul_spec.h"

namespace shale::bench {

using namespace kernel_check;

// A oneDNN matmul as in oneDNN's documentation, with oneDNN's own threads. It shows what a direct
// call of the library gives, without any of Shale's kernels. The number of threads is that of
// omp_set_num_threads() on the thread that creates and runs it.
class VendorMatmul final : public VendorPrimitive {
 public:
  // Throws UnavailableError if oneDNN does not support the GEMM.
  explicit VendorMatmul(const MatmulSpec& spec);
  ~VendorMatmul() override;
  VendorMatmul(VendorMatmul&&) noexcept;
  VendorMatmul& operator=(VendorMatmul&&) noexcept;

  size_t scratch_bytes() const override;
  std::string implementation() const;  // returns oneDNN's name of the kernel that it chose
  void run(const void* a, const void* b, void* c, void* scratch) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string onednn_version();

}  // namespace shale::bench

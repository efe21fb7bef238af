#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "shale/bench/support/matmul_spec.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// oneDNN's matmul as its documentation shows it, with oneDNN's own threads: what a program gets
// that calls the library directly. None of Shale's kernels is involved. The number of threads is
// what omp_set_num_threads() said on the thread that makes and runs it.
class VendorMatmul final : public VendorPrimitive {
 public:
  explicit VendorMatmul(const MatmulSpec& spec);  // throws UnavailableError where oneDNN cannot
  ~VendorMatmul() override;
  VendorMatmul(VendorMatmul&&) noexcept;
  VendorMatmul& operator=(VendorMatmul&&) noexcept;

  size_t scratch_bytes() const override;
  std::string implementation() const;  // oneDNN's name for the kernel that it chose
  void run(const void* a, const void* b, void* c, void* scratch) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string onednn_version();

}  // namespace shale::bench

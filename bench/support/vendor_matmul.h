#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "shale/bench/support/matmul_spec.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// oneDNN matmul as in its documentation, with oneDNN's own threads: the result of calling the
// library directly, without any of Shale's kernels. The number of threads is that of
// omp_set_num_threads() on the thread that creates and runs it.
class VendorMatmul final : public VendorPrimitive {
 public:
  explicit VendorMatmul(const MatmulSpec& spec);  // throws UnavailableError if not supported
  ~VendorMatmul() override;
  VendorMatmul(VendorMatmul&&) noexcept;
  VendorMatmul& operator=(VendorMatmul&&) noexcept;

  size_t scratch_bytes() const override;
  std::string implementation() const;  // oneDNN's name of the chosen kernel
  void run(const void* a, const void* b, void* c, void* scratch) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

std::string onednn_version();

}  // namespace shale::bench

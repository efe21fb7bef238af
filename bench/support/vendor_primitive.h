#pragma once

#include <cstddef>

namespace shale::bench {

// A GEMM or convolution by a vendor's library.
class VendorPrimitive {
 public:
  VendorPrimitive() = default;
  VendorPrimitive(VendorPrimitive&&) noexcept = default;
  VendorPrimitive& operator=(VendorPrimitive&&) noexcept = default;
  virtual ~VendorPrimitive() = default;

  virtual size_t scratch_bytes() const = 0;
  // Runs the GEMM or convolution. scratch: scratch_bytes() bytes, aligned to 64. The subclass
  // defines the operands.
  virtual void run(const void* a, const void* b, void* c, void* scratch) const = 0;
};

}  // namespace shale::bench

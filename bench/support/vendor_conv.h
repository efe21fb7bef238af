#pragma once

#include <memory>

#include "shale/bench/support/conv_spec.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// A oneDNN convolution with oneDNN's own threads, like VendorMatmul. Images are NHWC. Weights are
// in memory of this object, in oneDNN's preferred layout, so that no call reorders them.
class VendorConv final : public VendorPrimitive {
 public:
  // Throws UnavailableError if oneDNN does not support the convolution.
  explicit VendorConv(const ConvSpec& spec);
  ~VendorConv() override;

  size_t scratch_bytes() const override;
  // a, b and c are in, dy and out of ConvCall.
  void run(const void* a, const void* b, void* c, void* scratch) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shale::bench

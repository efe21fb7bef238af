#pragma once

#include <memory>

#include "shale/bench/support/conv_spec.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// oneDNN's convolution with oneDNN's own threads, as VendorMatmul has its products. Images are
// NHWC. Weights are in memory of this object's own, in the order that oneDNN likes best: nothing is
// reordered, which a program has to do that keeps them in another.
class VendorConv final : public VendorPrimitive {
 public:
  explicit VendorConv(const ConvSpec& spec);  // throws UnavailableError where oneDNN cannot
  ~VendorConv() override;

  size_t scratch_bytes() const override;
  // a, b, c: ConvCall's in, dy and out.
  void run(const void* a, const void* b, void* c, void* scratch) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shale::bench

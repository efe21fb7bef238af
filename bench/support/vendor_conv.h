#pragma once

#include <memory>

#include "shale/bench/support/conv_spec.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// oneDNN convolution with oneDNN's own threads, like VendorMatmul. Images are NHWC. Weights are in
// memory of this object, in oneDNN's preferred layout, without the reordering that a program with
// another layout needs.
class VendorConv final : public VendorPrimitive {
 public:
  explicit VendorConv(const ConvSpec& spec);  // throws UnavailableError if not supported
  ~VendorConv() override;

  size_t scratch_bytes() const override;
  // a, b, c: ConvCall's in, dy and out.
  void run(const void* a, const void* b, void* c, void* scratch) const override;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace shale::bench

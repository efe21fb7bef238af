#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shale/base/dtype.h"

namespace shale::kernels::cpu {

// The three passes of a convolution.
enum class ConvPass : uint8_t { kForward, kInputGrad, kWeightGrad };

// One pass of a convolution of dense NHWC images, by oneDNN in the calling thread. Weights are
// "packed", in a layout that oneDNN chooses for the spec.
class OnednnConv {
 public:
  struct Spec {
    ConvPass pass = ConvPass::kForward;
    int64_t images = 0, rows = 0, cols = 0, channels = 0;  // size of the input; not zero
    int64_t out_rows = 0, out_cols = 0, out_channels = 0;
    int64_t kernel_rows = 0, kernel_cols = 0;
    int64_t stride = 1, padding = 0;
    DType dtype = DType::kF32;  // f32, or bf16 if OnednnMatmul::has_fast_bf16()
    bool bias = false;          // has a bias, only with kForward
    // weights are packed as for a spec with this number of images; 0: in the layout that is best
    // for this spec
    int64_t packed_like = 0;

    // Gradients of weights are always f32.
    DType weight_dtype() const { return pass == ConvPass::kWeightGrad ? DType::kF32 : dtype; }

    friend bool operator==(const Spec&, const Spec&) = default;
  };

  // Returns an object from a cache of the last few hundred specs. The first use of a spec may
  // compile code. Thread-safe. Throws InternalError.
  static std::shared_ptr<const OnednnConv> get(const Spec& spec);

  ~OnednnConv();
  OnednnConv(const OnednnConv&) = delete;
  OnednnConv& operator=(const OnednnConv&) = delete;

  size_t packed_bytes() const;
  bool packs_like(const OnednnConv& other) const;  // returns true for the same packed layout
  size_t scratch_bytes() const;

  // Converts weight, dense [O, C, kh, kw] of weight_dtype(), to or from the packed layout, with
  // this number of threads.
  void pack(const void* weight, void* packed, int threads) const;
  void unpack(const void* packed, void* weight, int threads) const;

  // Inputs and outputs of a pass. `scratch` has scratch_bytes() bytes, begins at a multiple of 64,
  // and is not shared with other calls. Several threads may call run() concurrently.
  struct Operands {
    const void* in = nullptr;      // kForward: x, kInputGrad: dy, kWeightGrad: x
    const void* packed = nullptr;  // kForward and kInputGrad: packed weights
    const void* bias = nullptr;
    const void* dy = nullptr;  // kWeightGrad: dy
    void* out = nullptr;       // y, dx, or the packed weight gradient
    void* scratch = nullptr;
  };
  void run(const Operands& operands) const;

 private:
  struct Impl;
  // The packed layout is that of `like`, or oneDNN's choice if `like` is null.
  OnednnConv(const Spec& spec, const OnednnConv* like);

  std::unique_ptr<Impl> impl_;
};

}  // namespace shale::kernels::cpu

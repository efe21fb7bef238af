#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "shale/base/dtype.h"

namespace shale::kernels::cpu {

// The three products of a convolution.
enum class ConvPass : uint8_t { kForward, kInputGrad, kWeightGrad };

// One of them for `images` dense NHWC images, by oneDNN in the calling thread alone. Weights are in
// an order of oneDNN's choice, "packed", which depends on the spec.
class OnednnConv {
 public:
  struct Spec {
    ConvPass pass = ConvPass::kForward;
    int64_t images = 0, rows = 0, cols = 0, channels = 0;  // of the input; none is zero
    int64_t out_rows = 0, out_cols = 0, out_channels = 0;
    int64_t kernel_rows = 0, kernel_cols = 0;
    int64_t stride = 1, padding = 0;
    DType dtype = DType::kF32;  // f32, or bf16 where OnednnMatmul::supports_bf16()
    bool bias = false;          // with kForward alone
    int64_t packed_like = 0;    // images of the spec whose packed order this one takes; 0: its own

    // Of the weights: a gradient of theirs is always f32.
    DType weight_dtype() const { return pass == ConvPass::kWeightGrad ? DType::kF32 : dtype; }

    friend bool operator==(const Spec&, const Spec&) = default;
  };

  // From a cache that holds the last few hundred specs; made on first use, which may compile code.
  // Safe to call from any thread. Throws InternalError.
  static std::shared_ptr<const OnednnConv> get(const Spec& spec);

  ~OnednnConv();
  OnednnConv(const OnednnConv&) = delete;
  OnednnConv& operator=(const OnednnConv&) = delete;

  size_t packed_bytes() const;
  bool packs_like(const OnednnConv& other) const;  // whether packed weights are alike
  size_t scratch_bytes() const;

  // weight: dense [O, C, kh, kw] of weight_dtype(), to or from packed order, by so many threads.
  void pack(const void* weight, void* packed, int threads) const;
  void unpack(const void* packed, void* weight, int threads) const;

  // What a pass reads and writes. scratch: scratch_bytes(), aligned to 64, this call's alone. Any
  // number of threads may run one object at a time.
  struct Operands {
    const void* in = nullptr;      // kForward: x, kInputGrad: dy, kWeightGrad: x
    const void* packed = nullptr;  // kForward, kInputGrad
    const void* bias = nullptr;
    const void* dy = nullptr;  // kWeightGrad
    void* out = nullptr;       // y, dx, or the packed gradient of the weights
    void* scratch = nullptr;
  };
  void run(const Operands& operands) const;

 private:
  struct Impl;
  // like: whose packed order this takes; null: its own.
  OnednnConv(const Spec& spec, const OnednnConv* like);

  std::unique_ptr<Impl> impl_;
};

}  // namespace shale::kernels::cpu

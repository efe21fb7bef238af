#include "shale/runtime/ops/conv.h"

#include "shale/kernels/pool.h"
#include "shale/kernels/reduce.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/ops/cast_inputs.h"
#include "shale/runtime/ops/matrix.h"
#include "shale/runtime/ops/reduce.h"
#include "shale/runtime/ops/weight_uses.h"
#include "shale/runtime/tensor/op_recorder.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

// A weight, packed for one of a convolution's GEMMs.
struct PackedProduct {
  Tensor memory;
  kernels::PackedWeight packed;
  uint64_t version = 0;  // version of the packed weight
  WeightUses uses;
};

}  // namespace

struct PackedConvWeights {
  PackedProduct forward, input_grad;
};

namespace {

void check_conv(const Tensor& x, const Tensor& weight, const Tensor& bias, const Windows& windows) {
  check_contiguous("conv2d", "x", x);
  check_contiguous("conv2d", "weight", weight);
  if (x.ndim() != 4 || weight.ndim() != 4 || weight.size(1) != x.size(3)) {
    throw ShapeError(cat("conv2d: ", argument_text("weight", weight), " is ", weight.shape(),
                         ", x is ", x.shape(), ", expected [O,C,kh,kw] and [N,H,W,C]"));
  }
  if (windows.stride < 1 || windows.padding < 0 || windows.count(x.size(1), weight.size(2)) < 1 ||
      windows.count(x.size(2), weight.size(3)) < 1) {
    throw ShapeError(cat("conv2d: no window of ", weight.shape(), " fits x, ", x.shape(),
                         ", with a stride of ", windows.stride, " and a padding of ",
                         windows.padding));
  }
  check_dtype("conv2d", "weight", weight, x.dtype());
  if (bias.defined()) check_shape("conv2d", "bias", bias, {weight.size(0)});
}

// Returns the packed copy of `leaf` at `version` that several uses share; null if no copy is kept.
kernels::PackedWeight* packed_weight(const Tensor& leaf, uint64_t version,
                                     PackedProduct PackedConvWeights::*product) {
  if (!leaf.defined() || leaf.version() != version) return nullptr;
  std::shared_ptr<PackedConvWeights>& state = leaf_state(leaf).packed;
  if (state == nullptr) state = std::make_shared<PackedConvWeights>();
  PackedProduct& mine = (*state).*product;
  if (!mine.uses.share(version)) return nullptr;
  if (mine.version != version) mine.packed.data = nullptr;
  mine.version = version;
  mine.packed.allocate = [&mine, context = &leaf.context()](size_t bytes) {
    if (!mine.memory.defined() || mine.memory.numel() != int64_t(bytes)) {
      mine.memory = Tensor();
      mine.memory = empty(*context, {int64_t(bytes)}, DType::kU8, MemoryTag::kWorkspace,
                          "a weight packed for convolutions");
    }
    return mine.memory.view().data;
  };
  return &mine.packed;
}

// Convolves x with weight. leaf: the leaf to which weight belongs, or an undefined tensor; weight
// is then that leaf or its copy in another dtype.
Tensor conv2d_of(const Tensor& x, const Tensor& weight, const Tensor& bias, const Windows& windows,
                 const Tensor& leaf) {
  check_conv(x, weight, bias, windows);
  const bool records = needs_grad(x.context(), {x, weight, bias});
  // Saves tensors before the convolution. If this segment is being recomputed, saving the last
  // needed tensor ends the run, so the convolution is not computed.
  SavedTensor saved_x, saved_weight;
  if (records) saved_x = {"conv2d", x}, saved_weight = {"conv2d", weight};
  Tensor y = empty(x.context(),
                   {x.size(0), windows.count(x.size(1), weight.size(2)),
                    windows.count(x.size(2), weight.size(3)), weight.size(0)},
                   x.dtype());
  const uint64_t version = leaf.defined() ? leaf.version() : 0;
  kernels::conv(x.exec(), {.x = x,
                           .weight = weight,
                           .bias = bias.defined() ? bias.view() : View{},
                           .y = y,
                           .windows = windows,
                           .packed = packed_weight(leaf, version, &PackedConvWeights::forward)});
  if (OpRecorder* to = recorder_of(y)) {
    to->add("conv2d", {x, weight, bias}, {y},
            {{"stride", windows.stride}, {"padding", windows.padding}});
  }
  if (!records) return y;
  const auto backward = [x = saved_x, weight = saved_weight, bias, shape = x.shape(), windows, leaf,
                         version](BackwardArgs& args) {
    Grads grads(3);
    const Tensor dy = args.dy();
    if (args.needs(0)) {
      Tensor dx = empty(dy.context(), shape, dy.dtype());
      kernels::conv_input_grad(
          dy.exec(), {.dy = dy,
                      .weight = weight.get(),
                      .dx = dx,
                      .windows = windows,
                      .packed = packed_weight(leaf, version, &PackedConvWeights::input_grad)});
      grads[0] = dx;
    }
    if (args.needs(1)) {
      emit_grad(args, {1, weight.get()}, grads, [&](const Tensor& dweight, bool accumulate) {
        kernels::conv_weight_grad(dy.exec(), {.dy = dy,
                                              .x = x.get(),
                                              .dweight = dweight,
                                              .accumulate = accumulate,
                                              .windows = windows});
      });
    }
    emit_grad(args, {2, bias}, grads, [&](const Tensor& db, bool accumulate) {
      kernels::column_sum(dy.exec(), {.x = as_matrix(dy), .y = db, .accumulate = accumulate});
    });
    return grads;
  };
  record("conv2d", {x, weight, bias}, {&y}, backward);
  return y;
}

}  // namespace

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const Windows& windows) {
  check_defined("conv2d", "weight", weight);
  const bool is_leaf = weight.impl().leaf != nullptr && weight.contiguous();
  const Tensor leaf = is_leaf ? weight : Tensor();
  return amp::wants_low({x, weight, bias})
             ? conv2d_of(amp::to_low(x), amp::to_low(weight), amp::to_low(bias), windows, leaf)
             : conv2d_of(x, weight, bias, windows, leaf);
}

Tensor max_pool2d(const Tensor& x, int64_t kernel, const Windows& windows) {
  check_contiguous("max_pool2d", "x", x);
  if (x.ndim() != 4) {
    throw ShapeError(cat("max_pool2d: x is ", x.shape(), ", expected [N,H,W,C]"));
  }
  if (kernel < 1 || windows.stride < 1) {
    throw ShapeError(cat("max_pool2d: kernel is ", kernel, " and stride ", windows.stride,
                         ", expected at least 1"));
  }
  const Shape shape = {x.size(0), windows.count(x.size(1), kernel),
                       windows.count(x.size(2), kernel), x.size(3)};
  Tensor y = empty(x.context(), shape, x.dtype());
  const Tensor place = empty(x.context(), shape, DType::kU8);
  kernels::max_pool(x.exec(),
                    {.x = x, .y = y, .place = place, .kernel = kernel, .windows = windows});
  if (OpRecorder* to = recorder_of(y)) {
    to->add("max_pool2d", {x}, {y},
            {{"kernel", kernel}, {"stride", windows.stride}, {"padding", windows.padding}});
  }
  if (!needs_grad(x.context(), {x})) return y;
  record("max_pool2d", {x}, {&y},
         [place = SavedTensor("max_pool2d", place), shape = x.shape(), kernel,
          windows](BackwardArgs& args) {
           const Tensor dy = args.dy();
           Tensor dx = empty(dy.context(), shape, dy.dtype());
           kernels::max_pool_grad(
               dy.exec(),
               {.dy = dy, .place = place.get(), .dx = dx, .kernel = kernel, .windows = windows});
           return Grads{dx};
         });
  return y;
}

Tensor global_average_pool(const Tensor& x) {
  check_defined("global_average_pool", "x", x);
  if (x.ndim() != 4 || x.size(1) * x.size(2) == 0) {
    throw ShapeError(
        cat("global_average_pool: x is ", x.shape(), ", expected [N,H,W,C] with H, W above 0"));
  }
  return mean(x, {1, 2});
}

}  // namespace shale

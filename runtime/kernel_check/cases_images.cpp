#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {

using kernels::Windows;

// Adds layers of ResNet-18 and ResNet-50 at 224 pixels, from the first stage to the last.
void Cases::add_images(DeviceType device) {
  struct Layer {
    const char* name;
    int64_t edge, in, out, kernel, stride;
  };
  constexpr Layer kLayers[] = {{"stem", 224, 3, 64, 7, 2},
                               {"3x3/56", 56, 64, 64, 3, 1},
                               {"1x1/56", 56, 64, 256, 1, 1},
                               {"3x3/28/2", 56, 128, 128, 3, 2},
                               {"3x3/7", 7, 512, 512, 3, 1}};
  // On the slow emulator, images and numbers of channels are an eighth of their size.
  const int64_t parts = device == DeviceType::kEmu ? 8 : 1;
  const int64_t N = s_.batch;
  const DType dtype = dtype_;
  for (const Layer& layer : kLayers) {
    const Windows windows{.stride = layer.stride, .padding = layer.kernel / 2};
    const int64_t pixels = layer.edge / parts + (parts > 1 ? 1 : 0);
    const int64_t in = layer.in / parts + (parts > 1 ? 1 : 0), out = layer.out / parts;
    const int64_t edge = windows.count(pixels, layer.kernel);
    const Shape x = {N, pixels, pixels, in}, y = {N, edge, edge, out};
    const Shape weight = {out, in, layer.kernel, layer.kernel};
    add<kernels::ConvArgs>(layer.name, kernels::conv, [=](Operands& o) {
      return kernels::ConvArgs{.x = o.floats(dtype, x),
                               .weight = o.floats(dtype, weight),
                               .y = o.zeros(dtype, y),
                               .windows = windows};
    });
    add<kernels::ConvInputGradArgs>(layer.name, kernels::conv_input_grad, [=](Operands& o) {
      return kernels::ConvInputGradArgs{.dy = o.floats(dtype, y),
                                        .weight = o.floats(dtype, weight),
                                        .dx = o.zeros(dtype, x),
                                        .windows = windows};
    });
    add<kernels::ConvWeightGradArgs>(layer.name, kernels::conv_weight_grad, [=](Operands& o) {
      return kernels::ConvWeightGradArgs{.dy = o.floats(dtype, y),
                                         .x = o.floats(dtype, x),
                                         .dweight = o.zeros(DType::kF32, weight),
                                         .accumulate = true,
                                         .windows = windows};
    });
  }
  add_pooling(112 / parts);
  add_batch_norm(56 / parts);
}

void Cases::add_pooling(int64_t edge) {
  const Shape x = {s_.batch, edge, edge, 64}, y = {s_.batch, edge / 2, edge / 2, 64};
  const Windows windows{.stride = 2, .padding = 1};
  const DType dtype = dtype_;
  add<kernels::MaxPoolArgs>("stem", kernels::max_pool, [=](Operands& o) {
    return kernels::MaxPoolArgs{.x = o.floats(dtype, x),
                                .y = o.zeros(dtype, y),
                                .place = o.zeros(DType::kU8, y),
                                .kernel = 3,
                                .windows = windows};
  });
  add<kernels::MaxPoolGradArgs>("stem", kernels::max_pool_grad, [=](Operands& o) {
    return kernels::MaxPoolGradArgs{.dy = o.floats(dtype, y),
                                    .place = o.zeros(DType::kU8, y),
                                    .dx = o.zeros(dtype, x),
                                    .kernel = 3,
                                    .windows = windows};
  });
}

void Cases::add_batch_norm(int64_t edge) {
  const int64_t rows = s_.batch * edge * edge, C = 64;
  const DType dtype = dtype_;
  const DType f32 = DType::kF32;
  add<kernels::BatchMomentsArgs>("", kernels::batch_moments, [=](Operands& o) {
    return kernels::BatchMomentsArgs{.x = o.floats(dtype, {rows, C}),
                                     .moments = o.zeros(f32, {2 * C + 1})};
  });
  add<kernels::BatchMergeArgs>("", kernels::batch_merge, [=](Operands& o) {
    return kernels::BatchMergeArgs{.moments = o.zeros(f32, {8, 2 * C + 1}),
                                   .mean = o.zeros(f32, {C}),
                                   .rstd = o.zeros(f32, {C}),
                                   .count = o.zeros(f32, {1}),
                                   .running_mean = o.zeros(f32, {C}),
                                   .running_variance = o.zeros(f32, {C})};
  });
  add<kernels::BatchNormArgs>("relu", kernels::batch_norm, [=](Operands& o) {
    return kernels::BatchNormArgs{.x = o.floats(dtype, {rows, C}),
                                  .mean = o.floats(f32, {C}),
                                  .rstd = o.floats(f32, {C}),
                                  .gain = o.floats(dtype, {C}),
                                  .bias = o.floats(dtype, {C}),
                                  .residual = o.floats(dtype, {rows, C}),
                                  .relu = true,
                                  .y = o.zeros(dtype, {rows, C})};
  });
  add<kernels::BatchNormSumsArgs>("relu", kernels::batch_norm_sums, [=](Operands& o) {
    return kernels::BatchNormSumsArgs{.dy = o.floats(dtype, {rows, C}),
                                      .x = o.floats(dtype, {rows, C}),
                                      .y = o.floats(dtype, {rows, C}),
                                      .mean = o.floats(f32, {C}),
                                      .rstd = o.floats(f32, {C}),
                                      .sums = o.zeros(f32, {2, C}),
                                      .dgain = o.zeros(f32, {C}),
                                      .dbias = o.zeros(f32, {C})};
  });
  add<kernels::BatchNormGradArgs>("relu", kernels::batch_norm_grad, [=](Operands& o) {
    return kernels::BatchNormGradArgs{.dy = o.floats(dtype, {rows, C}),
                                      .x = o.floats(dtype, {rows, C}),
                                      .y = o.floats(dtype, {rows, C}),
                                      .mean = o.floats(f32, {C}),
                                      .rstd = o.floats(f32, {C}),
                                      .gain = o.floats(dtype, {C}),
                                      .sums = o.floats(f32, {2, C}),
                                      .count = o.floats(f32, {1}),
                                      .dx = o.zeros(dtype, {rows, C}),
                                      .d_residual = o.zeros(dtype, {rows, C})};
  });
}

}  // namespace shale::kernel_check

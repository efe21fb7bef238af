#include "shale/bench/support/conv_spec.h"

#include "shale/base/error.h"
#include "shale/kernels/conv.h"

namespace shale::bench {
namespace {

ConvSpec spec_of(ConvPass pass, const View& x, const View& weight, const View& y,
                 const kernels::Windows& windows) {
  return {.pass = pass,
          .images = x.size(0),
          .rows = x.size(1),
          .cols = x.size(2),
          .channels = x.size(3),
          .out_rows = y.size(1),
          .out_cols = y.size(2),
          .out_channels = y.size(3),
          .kernel_rows = weight.size(2),
          .kernel_cols = weight.size(3),
          .stride = windows.stride,
          .padding = windows.padding,
          .dtype = x.dtype};
}

}  // namespace

double ConvSpec::flops() const {
  return 2.0 * double(images * out_rows * out_cols * out_channels) *
         double(channels * kernel_rows * kernel_cols);
}

int64_t ConvSpec::x_bytes() const {
  return images * rows * cols * channels * dtype_size(dtype);
}

int64_t ConvSpec::y_bytes() const {
  return images * out_rows * out_cols * out_channels * dtype_size(dtype);
}

std::string ConvSpec::name() const {
  constexpr const char* kPasses[] = {"", ", input gradient", ", weight gradient"};
  return cat("conv ", kernel_rows, 'x', kernel_cols, '/', stride, ' ', images, 'x', rows, 'x', cols,
             'x', channels, " -> ", out_channels, kPasses[size_t(pass)]);
}

std::optional<ConvCall> conv_call(const kernels::SlotCall& call) {
  if (const auto* a = call.args_of(kernels::conv)) {
    return ConvCall{.spec = spec_of(ConvPass::kForward, a->x, a->weight, a->y, a->windows),
                    .in = a->x.data,
                    .out = a->y.data};
  }
  if (const auto* a = call.args_of(kernels::conv_input_grad)) {
    return ConvCall{.spec = spec_of(ConvPass::kInputGrad, a->dx, a->weight, a->dy, a->windows),
                    .in = a->dy.data,
                    .out = a->dx.data};
  }
  if (const auto* a = call.args_of(kernels::conv_weight_grad)) {
    return ConvCall{.spec = spec_of(ConvPass::kWeightGrad, a->x, a->dweight, a->dy, a->windows),
                    .in = a->x.data,
                    .dy = a->dy.data};
  }
  return {};
}

}  // namespace shale::bench

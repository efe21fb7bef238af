#include "shale/bench/support/vendor_conv.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/bench/support/buffer.h"
#include "shale/bench/support/vendor_onednn_internal.h"

namespace shale::bench {
namespace {

using dnnl::memory;
using Forward = dnnl::convolution_forward;
using InputGrad = dnnl::convolution_backward_data;
using WeightGrad = dnnl::convolution_backward_weights;

// Arguments that the constructors of all passes take, in any version of oneDNN.
struct Problem {
  explicit Problem(const ConvSpec& s)
      : x({s.images, s.channels, s.rows, s.cols}, onednn_type(s.dtype), memory::format_tag::nhwc),
        weight({s.out_channels, s.channels, s.kernel_rows, s.kernel_cols}, onednn_type(s.dtype),
               memory::format_tag::any),
        y({s.images, s.out_channels, s.out_rows, s.out_cols}, onednn_type(s.dtype),
          memory::format_tag::nhwc),
        strides{s.stride, s.stride},
        padding{s.padding, s.padding} {
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  }

  Forward::primitive_desc forward() const {
    constexpr auto kKind = dnnl::prop_kind::forward_training;
#if DNNL_VERSION_MAJOR >= 3
    return {onednn_engine(), kKind, kDirect, x, weight, y, strides, padding, padding, attr};
#else
    return {Forward::desc(kKind, kDirect, x, weight, y, strides, padding, padding), attr,
            onednn_engine()};
#endif
  }
  InputGrad::primitive_desc input_grad() const {
#if DNNL_VERSION_MAJOR >= 3
    return {onednn_engine(), kDirect, x, weight, y, strides, padding, padding, forward(), attr};
#else
    return {InputGrad::desc(kDirect, x, weight, y, strides, padding, padding), attr,
            onednn_engine(), forward()};
#endif
  }
  WeightGrad::primitive_desc weight_grad() const {
    const memory::desc sum(weight.dims(), memory::data_type::f32, memory::format_tag::any);
#if DNNL_VERSION_MAJOR >= 3
    return {onednn_engine(), kDirect, x, sum, y, strides, padding, padding, forward(), attr};
#else
    return {WeightGrad::desc(kDirect, x, sum, y, strides, padding, padding), attr, onednn_engine(),
            forward()};
#endif
  }

  static constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  memory::desc x, weight, y;
  memory::dims strides, padding;
  dnnl::primitive_attr attr;
};

}  // namespace

struct VendorConv::Impl {
  explicit Impl(const ConvSpec& spec) : pass(spec.pass), stream(onednn_engine()) {
    const Problem problem(spec);
    x = problem.x, y = problem.y;
    switch (pass) {
      case ConvPass::kForward: {
        const auto made = problem.forward();
        take(made, made.weights_desc());
        break;
      }
      case ConvPass::kInputGrad: {
        const auto made = problem.input_grad();
        take(made, made.weights_desc());
        break;
      }
      case ConvPass::kWeightGrad: {
        const auto made = problem.weight_grad();
        take(made, made.diff_weights_desc());
        break;
      }
    }
    room = Buffer(weight.get_size());
    const int64_t bytes = int64_t(room.bytes());
    const DType dtype = pass == ConvPass::kWeightGrad ? DType::kF32 : spec.dtype;
    fill_uniform(make_view(room.data(), dtype, {bytes / dtype_size(dtype)}), 0.03, /*seed=*/1);
  }

  template <typename PrimitiveDesc>
  void take(const PrimitiveDesc& made, const memory::desc& weights) {
    weight = weights;
    scratch = made.scratchpad_desc();
    conv = dnnl::primitive(made.get());
  }

  ConvPass pass;
  memory::desc x, y, weight, scratch;
  dnnl::primitive conv;
  Buffer room;  // memory of the weights or their gradient
  dnnl::stream stream;
};

VendorConv::VendorConv(const ConvSpec& spec) {
  try {
    impl_ = std::make_unique<Impl>(spec);
  } catch (const dnnl::error& error) {
    throw UnavailableError(cat("vendor convolution: oneDNN has no ", spec.name(), " of ",
                               dtype_name(spec.dtype), " on this CPU: ", error.what()));
  }
}

VendorConv::~VendorConv() = default;

size_t VendorConv::scratch_bytes() const {
  return impl_->scratch.get_size();
}

void VendorConv::run(const void* a, const void* b, void* c, void* scratch) const {
  const memory weight = onednn_memory(impl_->weight, impl_->room.data());
  const auto x = [this](const void* data) { return onednn_memory(impl_->x, data); };
  const auto y = [this](const void* data) { return onednn_memory(impl_->y, data); };
  std::unordered_map<int, memory> args = {
      {DNNL_ARG_SCRATCHPAD, onednn_memory(impl_->scratch, scratch)}};
  switch (impl_->pass) {
    case ConvPass::kForward:
      args.insert({{DNNL_ARG_SRC, x(a)}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DST, y(c)}});
      break;
    case ConvPass::kInputGrad:
      args.insert(
          {{DNNL_ARG_DIFF_DST, y(a)}, {DNNL_ARG_WEIGHTS, weight}, {DNNL_ARG_DIFF_SRC, x(c)}});
      break;
    case ConvPass::kWeightGrad:
      args.insert(
          {{DNNL_ARG_SRC, x(a)}, {DNNL_ARG_DIFF_DST, y(b)}, {DNNL_ARG_DIFF_WEIGHTS, weight}});
      break;
  }
  impl_->conv.execute(impl_->stream, args);
  impl_->stream.wait();
}

}  // namespace shale::bench

#include "shale/kernels/cpu/onednn_conv.h"

#include <unordered_map>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/cpu/onednn_internal.h"
#include "shale/kernels/dry_run.h"

namespace shale::kernels::cpu {
namespace {

using dnnl::memory;
using Spec = OnednnConv::Spec;
using Tag = memory::format_tag;

const char* pass_name(ConvPass pass) {
  switch (pass) {
    case ConvPass::kForward: return "convolution";
    case ConvPass::kInputGrad: return "gradient of a convolution's input";
    case ConvPass::kWeightGrad: return "gradient of a convolution's weights";
  }
  return "convolution";
}

[[noreturn]] void fail(const char* what, const Spec& s, const dnnl::error& error) {
  throw InternalError(cat("conv: oneDNN cannot ", what, " the ", pass_name(s.pass), " of [",
                          s.images, ",", s.rows, ",", s.cols, ",", s.channels, "] with [",
                          s.out_channels, ",", s.channels, ",", s.kernel_rows, ",", s.kernel_cols,
                          "] of ", dtype_name(s.dtype), ": ", error.what()));
}

struct SpecHash {
  size_t operator()(const Spec& s) const {
    SpecHasher hash;
    for (const int64_t value :
         {s.images, s.rows, s.cols, s.channels, s.out_rows, s.out_cols, s.out_channels,
          s.kernel_rows, s.kernel_cols, s.stride, s.padding, s.packed_like}) {
      hash.add(static_cast<uint64_t>(value));
    }
    hash.add(uint64_t(s.pass) | uint64_t(s.dtype) << 8 | uint64_t(s.bias) << 16);
    return hash.value();
  }
};

// Memory descriptors of a convolution's operands, the same for all passes.
struct Descs {
  memory::desc x, weight, bias, y;
};

memory::desc weights_of(const Spec& s, Tag tag, DType dtype) {
  return {{s.out_channels, s.channels, s.kernel_rows, s.kernel_cols}, onednn_type(dtype), tag};
}

Descs descs_of(const Spec& s, const memory::desc& weight) {
  const auto type = onednn_type(s.dtype);
  return {.x = {{s.images, s.channels, s.rows, s.cols}, type, Tag::nhwc},
          .weight = weight,
          .bias = s.bias ? memory::desc({s.out_channels}, type, Tag::x) : memory::desc(),
          .y = {{s.images, s.out_channels, s.out_rows, s.out_cols}, type, Tag::nhwc}};
}

// Strides of the windows, and padding before the first row and column. oneDNN derives the padding
// after the last row and column from the output size.
struct Places {
  explicit Places(const Spec& s) : strides{s.stride, s.stride}, padding{s.padding, s.padding} {}
  memory::dims strides, padding;
};

dnnl::primitive_attr user_scratch() {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  return attr;
}

using Forward = dnnl::convolution_forward;
using InputGrad = dnnl::convolution_backward_data;
using WeightGrad = dnnl::convolution_backward_weights;
constexpr auto kDirect = dnnl::algorithm::convolution_direct;
constexpr auto kTraining = dnnl::prop_kind::forward_training;

#if DNNL_VERSION_MAJOR >= 3
Forward::primitive_desc forward_desc(const Descs& d, const Places& p) {
  return {onednn_engine(), kTraining, kDirect,   d.x,           d.weight, d.bias, d.y,
          p.strides,       p.padding, p.padding, user_scratch()};
}
InputGrad::primitive_desc input_grad_desc(const Descs& d, const Places& p) {
  return {onednn_engine(), kDirect,   d.x,       d.weight,           d.y,
          p.strides,       p.padding, p.padding, forward_desc(d, p), user_scratch()};
}
WeightGrad::primitive_desc weight_grad_desc(const Descs& d, const Descs& hint, const Places& p) {
  return {onednn_engine(),       kDirect,       d.x, d.weight, d.y, p.strides, p.padding, p.padding,
          forward_desc(hint, p), user_scratch()};
}
#else
Forward::primitive_desc forward_desc(const Descs& d, const Places& p) {
  if (d.bias.is_zero()) {
    return {Forward::desc(kTraining, kDirect, d.x, d.weight, d.y, p.strides, p.padding, p.padding),
            user_scratch(), onednn_engine()};
  }
  return {Forward::desc(kTraining, kDirect, d.x, d.weight, d.bias, d.y, p.strides, p.padding,
                        p.padding),
          user_scratch(), onednn_engine()};
}
InputGrad::primitive_desc input_grad_desc(const Descs& d, const Places& p) {
  return {InputGrad::desc(kDirect, d.x, d.weight, d.y, p.strides, p.padding, p.padding),
          user_scratch(), onednn_engine(), forward_desc(d, p)};
}
WeightGrad::primitive_desc weight_grad_desc(const Descs& d, const Descs& hint, const Places& p) {
  return {WeightGrad::desc(kDirect, d.x, d.weight, d.y, p.strides, p.padding, p.padding),
          user_scratch(), onednn_engine(), forward_desc(hint, p)};
}
#endif

}  // namespace

struct OnednnConv::Impl {
  Spec spec;
  memory::desc plain;  // weight [O, C, kh, kw], row-major
  memory::desc x, packed, bias, y, scratch;
  dnnl::primitive conv;

  template <typename PrimitiveDesc>
  void take(const PrimitiveDesc& made, const memory::desc& weights) {
    packed = weights;
    scratch = made.scratchpad_desc();
    conv = dnnl::primitive(made.get());
  }
};

OnednnConv::OnednnConv(const Spec& spec, const OnednnConv* like) : impl_(std::make_unique<Impl>()) {
  const OnednnThreads one_thread(1);
  try {
    const Descs descs =
        descs_of(spec, like != nullptr ? like->impl_->packed
                                       : weights_of(spec, Tag::any, spec.weight_dtype()));
    const Places places(spec);
    impl_->spec = spec;
    impl_->plain = weights_of(spec, Tag::oihw, spec.weight_dtype());
    impl_->x = descs.x;
    impl_->bias = descs.bias;
    impl_->y = descs.y;
    switch (spec.pass) {
      case ConvPass::kForward: {
        const auto made = forward_desc(descs, places);
        impl_->take(made, made.weights_desc());
        break;
      }
      case ConvPass::kInputGrad: {
        const auto made = input_grad_desc(descs, places);
        impl_->take(made, made.weights_desc());
        break;
      }
      case ConvPass::kWeightGrad: {
        const Descs forward = descs_of(spec, weights_of(spec, Tag::any, spec.dtype));
        const auto made = weight_grad_desc(descs, forward, places);
        impl_->take(made, made.diff_weights_desc());
        break;
      }
    }
  } catch (const dnnl::error& error) {
    fail("make", spec, error);
  }
}

OnednnConv::~OnednnConv() = default;

std::shared_ptr<const OnednnConv> OnednnConv::get(const Spec& spec) {
  // The cache is the only global object of this file, because compiled code is expensive and the
  // same for every caller.
  static OnednnCache<Spec, OnednnConv, SpecHash> cache;
  std::shared_ptr<const OnednnConv> like;
  if (spec.packed_like != 0) {
    Spec other = spec;
    other.images = std::exchange(other.packed_like, 0);
    like = get(other);
  }
  return cache.get(
      spec, [&] { return std::shared_ptr<const OnednnConv>(new OnednnConv(spec, like.get())); });
}

size_t OnednnConv::packed_bytes() const {
  return impl_->packed.get_size();
}

bool OnednnConv::packs_like(const OnednnConv& other) const {
  return impl_->packed == other.impl_->packed;
}

size_t OnednnConv::scratch_bytes() const {
  return impl_->scratch.get_size();
}

namespace {

// Converts a layout. It only copies, so the bits do not depend on the number of threads.
void reorder(const memory::desc& from, const void* data, const memory::desc& to, void* copy,
             int threads) {
  if (DryRun::is_on()) return;
  const OnednnThreads at_most(threads);
  memory source = onednn_memory(from, data), target = onednn_memory(to, copy);
  dnnl::stream stream(onednn_engine());
  dnnl::reorder(source, target).execute(stream, source, target);
  stream.wait();
}

}  // namespace

void OnednnConv::pack(const void* weight, void* packed, int threads) const {
  try {
    reorder(impl_->plain, weight, impl_->packed, packed, threads);
  } catch (const dnnl::error& error) {
    fail("pack the weights of", impl_->spec, error);
  }
}

void OnednnConv::unpack(const void* packed, void* weight, int threads) const {
  try {
    reorder(impl_->packed, packed, impl_->plain, weight, threads);
  } catch (const dnnl::error& error) {
    fail("unpack the weights of", impl_->spec, error);
  }
}

void OnednnConv::run(const Operands& o) const {
  const OnednnThreads one_thread(1);
  try {
    dnnl::stream stream(onednn_engine());  // one stream per call, because calls must not share it
    std::unordered_map<int, memory> args;
    const Impl& impl = *impl_;
    args[DNNL_ARG_SCRATCHPAD] = onednn_memory(impl.scratch, o.scratch);
    switch (impl.spec.pass) {
      case ConvPass::kForward:
        args[DNNL_ARG_SRC] = onednn_memory(impl.x, o.in);
        args[DNNL_ARG_WEIGHTS] = onednn_memory(impl.packed, o.packed);
        if (impl.spec.bias) args[DNNL_ARG_BIAS] = onednn_memory(impl.bias, o.bias);
        args[DNNL_ARG_DST] = onednn_memory(impl.y, o.out);
        break;
      case ConvPass::kInputGrad:
        args[DNNL_ARG_DIFF_DST] = onednn_memory(impl.y, o.in);
        args[DNNL_ARG_WEIGHTS] = onednn_memory(impl.packed, o.packed);
        args[DNNL_ARG_DIFF_SRC] = onednn_memory(impl.x, o.out);
        break;
      case ConvPass::kWeightGrad:
        args[DNNL_ARG_SRC] = onednn_memory(impl.x, o.in);
        args[DNNL_ARG_DIFF_DST] = onednn_memory(impl.y, o.dy);
        args[DNNL_ARG_DIFF_WEIGHTS] = onednn_memory(impl.packed, o.out);
        break;
    }
    impl.conv.execute(stream, args);
    stream.wait();
  } catch (const dnnl::error& error) {
    fail("run", impl_->spec, error);
  }
}

}  // namespace shale::kernels::cpu

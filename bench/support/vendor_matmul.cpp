#include "shale/bench/support/vendor_matmul.h"

#include "shale/base/error.h"
#include "shale/bench/support/vendor_onednn_internal.h"

namespace shale::bench {
namespace {

using dnnl::memory;

memory::desc desc(int64_t rows, int64_t cols, int64_t ld, bool transposed, DType dtype) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return memory::desc({rows, cols}, onednn_type(dtype), strides);
}

dnnl::matmul::primitive_desc make_desc(const MatmulSpec& s) {
  const auto a = desc(s.m, s.k, s.lda, s.a_transposed, s.in);
  const auto b = desc(s.k, s.n, s.ldb, s.b_transposed, s.in);
  const auto c = desc(s.m, s.n, s.ldc, false, s.out);
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.f);
    attr.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {onednn_engine(), a, b, c, attr};
#else
  return {dnnl::matmul::desc(a, b, c), attr, onednn_engine()};
#endif
}

}  // namespace

const dnnl::engine& onednn_engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::data_type onednn_type(DType dtype) {
  switch (dtype) {
    case DType::kF32: return memory::data_type::f32;
    case DType::kBF16: return memory::data_type::bf16;
    case DType::kF16: return memory::data_type::f16;
    default:
      throw UnavailableError(
          cat("vendor GEMM: the dtype is ", dtype_name(dtype), ", expected fp32, bf16 or fp16"));
  }
}

struct VendorMatmul::Impl {
  MatmulSpec spec;
  memory::desc a, b, c, scratch;
  dnnl::matmul matmul;
  std::string implementation;
  dnnl::stream stream;
};

VendorMatmul::VendorMatmul(const MatmulSpec& spec) : impl_(std::make_unique<Impl>()) {
  try {
    const auto made = make_desc(spec);
    *impl_ = {.spec = spec,
              .a = made.src_desc(),
              .b = made.weights_desc(),
              .c = made.dst_desc(),
              .scratch = made.scratchpad_desc(),
              .matmul = dnnl::matmul(made),
              .implementation = made.impl_info_str(),
              .stream = dnnl::stream(onednn_engine())};
  } catch (const dnnl::error& error) {
    throw UnavailableError(cat("vendor matmul: oneDNN has no GEMM of ", dtype_name(spec.in),
                               " into ", dtype_name(spec.out), " on this CPU: ", error.what()));
  }
}

VendorMatmul::~VendorMatmul() = default;
VendorMatmul::VendorMatmul(VendorMatmul&&) noexcept = default;
VendorMatmul& VendorMatmul::operator=(VendorMatmul&&) noexcept = default;

size_t VendorMatmul::scratch_bytes() const {
  return impl_->scratch.get_size();
}
std::string VendorMatmul::implementation() const {
  return impl_->implementation;
}

void VendorMatmul::run(const void* a, const void* b, void* c, void* scratch) const {
  impl_->matmul.execute(impl_->stream,
                        {{DNNL_ARG_SRC, onednn_memory(impl_->a, a)},
                         {DNNL_ARG_WEIGHTS, onednn_memory(impl_->b, b)},
                         {DNNL_ARG_DST, onednn_memory(impl_->c, c)},
                         {DNNL_ARG_SCRATCHPAD, onednn_memory(impl_->scratch, scratch)}});
  impl_->stream.wait();
}

std::string onednn_version() {
  const dnnl_version_t* version = dnnl_version();
  return cat(version->major, ".", version->minor, ".", version->patch);
}

}  // namespace shale::bench

#include "shale/kernels/cpu/onednn_matmul.h"

#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/cpu/onednn_internal.h"

namespace shale::kernels::cpu {
namespace {

using dnnl::memory;

memory::desc desc(int64_t rows, int64_t cols, int64_t ld, bool transposed, DType dtype) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return memory::desc({rows, cols}, onednn_type(dtype), strides);
}

dnnl::matmul::primitive_desc make_desc(const OnednnMatmul::Spec& s) {
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

// Returns whether oneDNN uses the instruction set.
bool has_isa(dnnl::cpu_isa isa) {
  // oneDNN's value for an instruction set includes the bits of all its subsets.
  static const auto used = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (used & static_cast<unsigned>(isa)) == static_cast<unsigned>(isa);
}

[[noreturn]] void fail(const char* what, const OnednnMatmul::Spec& s, const dnnl::error& error) {
  throw InternalError(cat("gemm: oneDNN cannot ", what, " a GEMM of m ", s.m, ", n ", s.n, ", k ",
                          s.k, " of ", dtype_name(s.in), " into ", dtype_name(s.out), ": ",
                          error.what()));
}

struct SpecHash {
  size_t operator()(const OnednnMatmul::Spec& s) const {
    SpecHasher hash;
    for (const int64_t value : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) hash.add(uint64_t(value));
    hash.add(uint64_t(s.a_transposed) | uint64_t(s.b_transposed) << 1 |
             uint64_t(s.accumulate) << 2 | uint64_t(s.in) << 8 | uint64_t(s.out) << 16);
    return hash.value();
  }
};

}  // namespace

struct OnednnMatmul::Impl {
  Spec spec;
  memory::desc a, b, c, scratch;
  dnnl::matmul matmul;
};

OnednnMatmul::OnednnMatmul(const Spec& spec) : impl_(std::make_unique<Impl>()) {
  const OnednnThreads one_thread(1);
  try {
    const auto made = make_desc(spec);
    *impl_ = {.spec = spec,
              .a = made.src_desc(),
              .b = made.weights_desc(),
              .c = made.dst_desc(),
              .scratch = made.scratchpad_desc(),
              .matmul = dnnl::matmul(made)};
    scratch_bytes_ = impl_->scratch.get_size();
  } catch (const dnnl::error& error) {
    fail("make", spec, error);
  }
}

OnednnMatmul::~OnednnMatmul() = default;

std::shared_ptr<const OnednnMatmul> OnednnMatmul::get(const Spec& spec) {
  // The cache is the only global object of this file, because compiled code is expensive and the
  // same for every caller.
  static OnednnCache<Spec, OnednnMatmul, SpecHash> cache;
  return cache.get(spec,
                   [&] { return std::shared_ptr<const OnednnMatmul>(new OnednnMatmul(spec)); });
}

bool OnednnMatmul::has_fast_bf16() {
  static const bool is_fast = [] {
#if defined(__x86_64__)
    // Intel's CPUs multiply bf16 at most as fast as f32, except in the tiles of AMX.
    if (__builtin_cpu_is("intel") && !has_isa(dnnl::cpu_isa::avx512_core_amx)) return false;
#endif
    try {
      constexpr DType kBF16 = DType::kBF16;
      make_desc({.m = 8, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8, .in = kBF16, .out = kBF16});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return is_fast;
}

bool OnednnMatmul::has_avx512() {
  return has_isa(dnnl::cpu_isa::avx512_core);
}

void OnednnMatmul::run(const void* a, const void* b, void* c, void* scratch) const {
  const OnednnThreads one_thread(1);
  try {
    dnnl::stream stream(onednn_engine());  // one stream per call, because calls must not share it
    impl_->matmul.execute(stream,
                          {{DNNL_ARG_SRC, onednn_memory(impl_->a, a)},
                           {DNNL_ARG_WEIGHTS, onednn_memory(impl_->b, b)},
                           {DNNL_ARG_DST, onednn_memory(impl_->c, c)},
                           {DNNL_ARG_SCRATCHPAD, onednn_memory(impl_->scratch, scratch)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    fail("run", impl_->spec, error);
  }
}

}  // namespace shale::kernels::cpu

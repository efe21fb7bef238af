#include "shale/kernels/cpu/onednn_matmul.h"

#include <omp.h>
#include <dnnl.hpp>

#include <mutex>
#include <unordered_map>

#include "shale/base/error.h"

// A library on another thread pool would ignore what OneThread asks for, and give results that
// depend on the number of threads.
static_assert(DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_OMP ||
                  DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_SEQ,
              "oneDNN must be built with OpenMP or without threads");

namespace shale::kernels::cpu {
namespace {

using dnnl::memory;

// While it lives, oneDNN sees one thread: it asks omp_get_max_threads() when it makes a primitive
// and again when it runs one. The value belongs to the calling thread's task, inside of a parallel
// region and outside.
class OneThread {
 public:
  OneThread() : threads_(omp_get_max_threads()) {
    if (threads_ != 1) omp_set_num_threads(1);
  }
  ~OneThread() {
    if (threads_ != 1) omp_set_num_threads(threads_);
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int threads_;
};

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::data_type data_type(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc desc(int64_t rows, int64_t cols, int64_t ld, bool transposed, DType dtype) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return memory::desc({rows, cols}, data_type(dtype), strides);
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
  return {engine(), a, b, c, attr};
#else
  return {dnnl::matmul::desc(a, b, c), attr, engine()};
#endif
}

[[noreturn]] void fail(const char* what, const OnednnMatmul::Spec& s, const dnnl::error& error) {
  throw InternalError(cat("gemm: oneDNN cannot ", what, " a product of m ", s.m, ", n ", s.n,
                          ", k ", s.k, " of ", dtype_name(s.in), " into ", dtype_name(s.out), ": ",
                          error.what()));
}

struct SpecHash {
  size_t operator()(const OnednnMatmul::Spec& s) const {
    uint64_t h = 0;
    const auto mix = [&h](uint64_t value) {
      h = (h ^ value) * 0x9e3779b97f4a7c15u;
      h ^= h >> 32;
    };
    for (const int64_t value : {s.m, s.n, s.k, s.lda, s.ldb, s.ldc}) mix(uint64_t(value));
    mix(uint64_t(s.a_transposed) | uint64_t(s.b_transposed) << 1 | uint64_t(s.accumulate) << 2 |
        uint64_t(s.in) << 8 | uint64_t(s.out) << 16);
    return h;
  }
};

// A model's products need a few dozen entries. Whoever uses more shapes than fit starts over, which
// costs what the first use of a shape costs; objects in use live on.
class Cache {
 public:
  static constexpr size_t kCapacity = 512;

  template <typename Make>
  std::shared_ptr<const OnednnMatmul> get(const OnednnMatmul::Spec& spec, Make&& make) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto it = entries_.find(spec); it != entries_.end()) return it->second;
    std::shared_ptr<const OnednnMatmul> made = make();
    if (entries_.size() >= kCapacity) entries_.clear();
    entries_.emplace(spec, made);
    return made;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<OnednnMatmul::Spec, std::shared_ptr<const OnednnMatmul>, SpecHash> entries_;
};

}  // namespace

struct OnednnMatmul::Impl {
  Spec spec;
  memory::desc a, b, c, scratch;
  dnnl::matmul matmul;
};

OnednnMatmul::OnednnMatmul(const Spec& spec) : impl_(std::make_unique<Impl>()) {
  const OneThread one_thread;
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
  // Compiled code is expensive and the same for every caller: the one global of this file.
  static Cache cache;
  return cache.get(spec,
                   [&] { return std::shared_ptr<const OnednnMatmul>(new OnednnMatmul(spec)); });
}

bool OnednnMatmul::supports_bf16() {
  static const bool supported = [] {
    try {
      constexpr DType kBF16 = DType::kBF16;
      make_desc({.m = 8, .n = 8, .k = 8, .lda = 8, .ldb = 8, .ldc = 8, .in = kBF16, .out = kBF16});
      return true;
    } catch (const dnnl::error&) {
      return false;
    }
  }();
  return supported;
}

bool OnednnMatmul::has_avx512() {
  // An instruction set's value has the bits of those that it includes.
  constexpr auto kWanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  static const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (isa & kWanted) == kWanted;
}

void OnednnMatmul::run(const void* a, const void* b, void* c, void* scratch) const {
  const OneThread one_thread;
  try {
    // oneDNN's memory objects hold plain pointers; it reads a and b only.
    const auto wrap = [](const memory::desc& d, const void* data) {
      return memory(d, engine(), const_cast<void*>(data));
    };
    dnnl::stream stream(engine());  // one each: a stream is not meant to be shared by threads
    impl_->matmul.execute(stream, {{DNNL_ARG_SRC, wrap(impl_->a, a)},
                                   {DNNL_ARG_WEIGHTS, wrap(impl_->b, b)},
                                   {DNNL_ARG_DST, wrap(impl_->c, c)},
                                   {DNNL_ARG_SCRATCHPAD, wrap(impl_->scratch, scratch)}});
    stream.wait();
  } catch (const dnnl::error& error) {
    fail("run", impl_->spec, error);
  }
}

}  // namespace shale::kernels::cpu

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/pointwise.cpp"
#include <hwy/foreach_target.h>
//
#include <algorithm>
#include <array>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/loop-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/pointwise_functions-inl.h"
#include "shale/kernels/cpu/run.h"
#include "shale/kernels/pointwise.h"

// Interprets pointwise programs. A thread owns a range of elements, which it processes tile by
// tile. A register of the program is a tile of f32 that stays in the L1 cache. A step is one loop
// over a tile, so interpreting the program costs little per element. A dense f32 input
// is read in place, and a result that goes only to an f32 output is computed there.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

inline constexpr int64_t kTile = 256;
inline constexpr int64_t kPointwiseGrain = 16384;

using StepFn = void (*)(const float* a, const float* b, const float* c, float* y, int64_t n);

template <int op>
void run_step(const float* a, const float* b, const float* c, float* y, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    store(apply(PointwiseOp(op), load(a + i, part), load(b + i, part), load(c + i, part)), y + i,
          part);
  });
}

template <size_t... ops>
constexpr auto step_table(std::index_sequence<ops...>) {
  return std::array<StepFn, sizeof...(ops)>{run_step<int(ops)>...};
}
constexpr auto kSteps =
    step_table(std::make_index_sequence<static_cast<size_t>(PointwiseOp::kStore)>());

template <typename T>
void widen(const T* from, float* to, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR { store(load(from + i, part), to + i, part); });
}
void widen(const uint8_t* from, float* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = float(from[i]);
}
template <typename T>
void narrow(const float* from, T* to, int64_t n) {
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR { store(load(from + i, part), to + i, part); });
}
void narrow(const float* from, uint8_t* to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) to[i] = from[i] != 0.f;
}

// Rounds the numbers of a tile to T, and keeps the results in f32.
template <typename T>
void round_tile(float* x, int64_t n) {
  HWY_ALIGN T rounded[kTile];
  narrow(x, rounded, n);
  widen(rounded, x, n);
}

template <class Fn>
void dispatch_pointwise(DType dtype, const Fn& fn) {
  if (dtype == DType::kU8) return fn.template operator()<uint8_t>();
  dispatch_float(dtype, fn);
}

float element_of(float x) {
  return x;
}
float element_of(uint8_t x) {
  return float(x);
}
float element_of(bf16 x) {
  return to_f32(x);
}
float element_of(f16 x) {
  return to_f32(x);
}

// The registers of one thread and their memory.
class Tiles {
 public:
  Tiles(const PointwiseArgs& args, const PointwiseDims& dims)
      : args_(args), program_(*args.program), dims_(dims) {
    for (size_t r = 0; r < size_t(program_.registers); ++r) at_[r] = buffer(int(r));
    for (int s = 0; s < program_.constants; ++s) {
      const PointwiseStep& step = program_.steps[size_t(s)];
      std::fill_n(buffer(step.to), kTile, step.value);
    }
  }

  // Computes elements [begin, begin + n) of the outputs.
  void run(int64_t begin, int64_t n) {
    for (int s = program_.constants; s < program_.count; ++s) {
      const PointwiseStep& step = program_.steps[size_t(s)];
      if (step.op == PointwiseOp::kLoad) {
        at_[step.to] = load_input(step.operand, begin, n, buffer(step.to));
      } else if (step.op == PointwiseOp::kStore) {
        store_output(step, begin, n);
      } else {
        compute(step, s, begin, n);
      }
    }
  }

 private:
  float* buffer(int number) { return memory_ + number * kTile; }

  void compute(const PointwiseStep& step, int s, int64_t begin, int64_t n) {
    const float *a = at_[step.a], *b = at_[step.b], *c = at_[step.c];
    float* y = target(step, s, begin);
    at_[step.to] = y;
    if (step.op != PointwiseOp::kConvert || a != y) {
      kSteps[static_cast<size_t>(step.op)](a, b, c, y, n);
    }
    if (step.dtype == DType::kBF16) round_tile<bf16>(y, n);
    if (step.dtype == DType::kF16) round_tile<f16>(y, n);
  }

  // Returns where to write a step's result: to the output itself, if the next step copies it to an
  // f32 output.
  float* target(const PointwiseStep& step, int s, int64_t begin) {
    const PointwiseStep* next = s + 1 < program_.count ? &program_.steps[size_t(s + 1)] : nullptr;
    if (next == nullptr || next->op != PointwiseOp::kStore || next->a != step.to) {
      return buffer(step.to);
    }
    const View& y = args_.outputs[next->operand];
    return y.dtype == DType::kF32 ? y.as<float>() + begin : buffer(step.to);
  }

  void store_output(const PointwiseStep& step, int64_t begin, int64_t n) {
    const View& y = args_.outputs[step.operand];
    const float* from = at_[step.a];
    dispatch_pointwise(y.dtype, [&]<typename T>() {
      T* to = y.as<T>() + begin;
      if (static_cast<const void*>(from) != to) narrow(from, to, n);
    });
  }

  const float* load_input(int input, int64_t begin, int64_t n, float* to) {
    const View& x = args_.inputs[size_t(input)];
    const bool dense = dims_.dense[size_t(input)];
    if (dense && x.dtype == DType::kF32) return x.as<float>() + begin;
    dispatch_pointwise(x.dtype, [&]<typename T>() {
      if (dense) {
        widen(x.as<T>() + begin, to, n);
      } else {
        gather(x.as<T>(), size_t(input), begin, n, to);
      }
    });
    return to;
  }

  // Gathers elements [begin, begin + n) of an input that is not dense, in runs along the innermost
  // dimension.
  template <typename T>
  void gather(const T* x, size_t input, int64_t begin, int64_t n, float* to) {
    const size_t inner = size_t(dims_.count - 1);
    const int64_t length = dims_.size[inner], stride = dims_.stride[inner][input];
    int64_t done = 0;
    while (done < n) {
      int64_t rest = begin + done, offset = 0;
      const int64_t within = rest % length;
      rest /= length;
      for (size_t d = inner; d-- > 0;) {
        offset += rest % dims_.size[d] * dims_.stride[d][input];
        rest /= dims_.size[d];
      }
      const int64_t count = std::min(n - done, length - within);
      const T* from = x + offset + within * stride;
      if (stride == 1) {
        widen(from, to + done, count);
      } else if (stride == 0) {
        std::fill_n(to + done, count, element_of(*from));
      } else {
        for (int64_t i = 0; i < count; ++i) to[done + i] = element_of(from[i * stride]);
      }
      done += count;
    }
  }

  const PointwiseArgs& args_;
  const PointwiseProgram& program_;
  const PointwiseDims& dims_;
  std::array<const float*, kMaxPointwiseRegisters> at_{};
  HWY_ALIGN float memory_[kMaxPointwiseRegisters * kTile];
};

void pointwise_target(const Exec& exec, const PointwiseArgs& args) {
  const PointwiseDims dims(args);
  parallel_for(exec, args.outputs[0].numel(), kPointwiseGrain, [&](int64_t begin, int64_t end) {
    Tiles tiles(args, dims);
    for (int64_t at = begin; at < end; at += kTile) tiles.run(at, std::min(kTile, end - at));
  });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(pointwise_target);

template <>
void cpu::run(const Exec& exec, const PointwiseArgs& a) {
  HWY_DYNAMIC_DISPATCH(pointwise_target)(exec, a);
}

}  // namespace shale::kernels
#endif

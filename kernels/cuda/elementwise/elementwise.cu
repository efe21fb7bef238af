#include "shale/kernels/elementwise.h"

#include "shale/kernels/check.h"
#include "shale/kernels/cuda/elementwise/gelu.cuh"
#include "shale/kernels/cuda/elementwise/map.cuh"
#include "shale/kernels/cuda/elementwise/swiglu.cuh"
#include "shale/kernels/cuda/run.h"

// The kernels read or write every operand once: axpby and mul transfer a, b and y; a cast transfers
// a and y; gelu_fwd x and y; gelu_bwd x, dy and dx; swiglu_fwd gate, up and y.

namespace shale::kernels::SHALE_BACKEND {
namespace {

template <class A, class Y>
struct Scale {
  static constexpr int kCount = 16 / (A::kWidest > Y::kWidest ? A::kWidest : Y::kWidest);
  A a;
  Y y;
  float alpha;

  bool packed() const { return allows_packs(a, kCount) && allows_packs(y, kCount); }
  template <int n>
  __device__ __forceinline__ Floats<n> load(int64_t i) const {
    return a.template load<n>(i);
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Floats<n> values) const {
#pragma unroll
    for (int k = 0; k < n; ++k) values.at[k] *= alpha;
    y.template store<n>(i, values);
  }
};

// Computes y = combine(a, b), with operands of one kind (Typed or Mixed).
template <class Operand, class Combine>
struct Binary {
  static constexpr int kCount = 16 / Operand::kWidest;
  Operand a, b, y;
  Combine combine;

  bool packed() const {
    return allows_packs(a, kCount) && allows_packs(b, kCount) && allows_packs(y, kCount);
  }
  template <int n>
  struct Inputs {
    Floats<n> a, b;
  };
  template <int n>
  __device__ __forceinline__ Inputs<n> load(int64_t i) const {
    return {a.template load<n>(i), b.template load<n>(i)};
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, const Inputs<n>& in) const {
    Floats<n> out;
#pragma unroll
    for (int k = 0; k < n; ++k) out.at[k] = combine(in.a.at[k], in.b.at[k]);
    y.template store<n>(i, out);
  }
};

struct WeightedSum {
  float alpha, beta;
  __device__ __forceinline__ float operator()(float a, float b) const {
    return fmaf(alpha, a, beta * b);
  }
};

struct Product {
  __device__ __forceinline__ float operator()(float a, float b) const { return a * b; }
};

// Computes y = a times the single element of b, which is in device memory.
struct Multiple {
  static constexpr int kCount = 16 / Mixed::kWidest;
  Mixed a, b, y;

  bool packed() const { return allows_packs(a, kCount) && allows_packs(y, kCount); }
  template <int n>
  __device__ __forceinline__ Floats<n> load(int64_t i) const {
    return a.load<n>(i);
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Floats<n> values) const {
    const float factor = b.load<1>(0).at[0];
#pragma unroll
    for (int k = 0; k < n; ++k) values.at[k] *= factor;
    y.store<n>(i, values);
  }
};

template <typename T, class Function>
struct GeluFwd {
  static constexpr int kCount = kPackSize<T>;
  Typed<T> x, y;

  bool packed() const { return allows_packs(x, kCount) && allows_packs(y, kCount); }
  template <int n>
  __device__ __forceinline__ Floats<n> load(int64_t i) const {
    return x.template load<n>(i);
  }
  template <int n>
  __device__ __forceinline__ void store(int64_t i, Floats<n> values) const {
#pragma unroll
    for (int k = 0; k < n; ++k) values.at[k] = Function::value(values.at[k]);
    y.template store<n>(i, values);
  }
};

template <class Function>
struct GeluBwd {
  __device__ __forceinline__ float operator()(float x, float dy) const {
    return dy * Function::slope(x);
  }
};

struct SwiGlu {
  __device__ __forceinline__ float operator()(float gate, float up) const {
    return silu(gate) * up;
  }
};

struct Tanh {
  static __device__ __forceinline__ float value(float x) { return gelu_tanh(x); }
  static __device__ __forceinline__ float slope(float x) { return dgelu_tanh(x); }
};
struct Erf {
  static __device__ __forceinline__ float value(float x) { return gelu_erf(x); }
  static __device__ __forceinline__ float slope(float x) { return dgelu_erf(x); }
};

template <class Combine>
void launch_typed(const Exec& exec, const View& a, const View& b, const View& y,
                  const Combine& combine) {
  dispatch_float(y.dtype, [&]<typename T>() {
    map(exec, Binary<Typed<T>, Combine>{Typed<T>(a), Typed<T>(b), Typed<T>(y), combine}, y.numel());
  });
}

template <class Combine>
void launch_binary(const Exec& exec, const View& a, const View& b, const View& y,
                   const Combine& combine) {
  if (a.dtype == y.dtype && b.dtype == y.dtype) return launch_typed(exec, a, b, y, combine);
  map(exec, Binary<Mixed, Combine>{Mixed(a), Mixed(b), Mixed(y), combine}, y.numel());
}

}  // namespace

template <>
void run(const Exec& exec, const AxpbyArgs& args) {
  if (args.b.defined()) {
    launch_binary(exec, args.a, args.b, args.y, WeightedSum{args.alpha, args.beta});
    return;
  }
  dispatch_float(args.y.dtype, [&]<typename Y>() {
    dispatch_float(args.a.dtype, [&]<typename A>() {
      map(exec, Scale<Typed<A>, Typed<Y>>{Typed<A>(args.a), Typed<Y>(args.y), args.alpha},
          args.y.numel());
    });
  });
}

template <>
void run(const Exec& exec, const MulArgs& args) {
  if (args.b.numel() == 1) {
    map(exec, Multiple{Mixed(args.a), Mixed(args.b), Mixed(args.y)}, args.y.numel());
  } else {
    launch_binary(exec, args.a, args.b, args.y, Product());
  }
}

template <>
void run(const Exec& exec, const GeluFwdArgs& args) {
  dispatch_float(args.x.dtype, [&]<typename T>() {
    const Typed<T> x(args.x), y(args.y);
    if (args.exact) {
      map(exec, GeluFwd<T, Erf>{x, y}, args.x.numel());
    } else {
      map(exec, GeluFwd<T, Tanh>{x, y}, args.x.numel());
    }
  });
}

template <>
void run(const Exec& exec, const GeluBwdArgs& args) {
  if (args.exact) {
    launch_typed(exec, args.x, args.dy, args.dx, GeluBwd<Erf>());
  } else {
    launch_typed(exec, args.x, args.dy, args.dx, GeluBwd<Tanh>());
  }
}

template <>
void run(const Exec& exec, const SwiGluFwdArgs& args) {
  launch_typed(exec, args.gate, args.up, args.y, SwiGlu());
}

}  // namespace shale::kernels::SHALE_BACKEND

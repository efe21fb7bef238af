#pragma once

#include <cstdint>

#include "runtime/base/dtype.h"
#include "runtime/base/view.h"

namespace shale::kernels {

// Elements per chunk: some 0.5 MiB of states, so that chunks are many and none is tiny.
inline constexpr int64_t kOptimGrain = 16384;

// fn.template operator()<Grad, Param>() for the dtypes of grad and param.
template <typename Fn>
void dispatch_optim(const View& grad, const View& param, const Fn& fn) {
  const auto with_grad = [&]<typename Grad>() {
    if (param.defined() && param.dtype == DType::kF16) {
      fn.template operator()<Grad, f16>();
    } else {
      fn.template operator()<Grad, bf16>();
    }
  };
  if (grad.dtype == DType::kBF16) {
    with_grad.template operator()<bf16>();
  } else {
    with_grad.template operator()<float>();
  }
}

}  // namespace shale::kernels

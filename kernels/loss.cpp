#include "shale/kernels/loss.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
void check_args(const CrossEntropyArgs& a) {
  constexpr const char* kOp = "cross_entropy";
  check_dtype(kOp, "logits", a.logits, kComputeDTypes);
  if (a.logits.ndim() != 2 || (a.logits.cols() != 1 && a.logits.stride(1) != 1)) {
    throw ShapeError(cat(kOp, ": logits is ", a.logits, " with strides ", a.logits.strides,
                         ", want [rows, vocabulary] with contiguous rows"));
  }
  const int64_t rows = a.logits.size(0);
  check_dense(kOp, "targets", a.targets, {rows}, DType::kI32);
  check_dense(kOp, "losses", a.losses, {rows}, DType::kF32);
  if (a.vocab < 1 || a.vocab > a.logits.cols()) {
    throw ShapeError(
        cat(kOp, ": vocab is ", a.vocab, ", logits have ", a.logits.cols(), " columns"));
  }
  if (a.softcap != 0 && !(a.softcap >= 1e-3f && a.softcap <= 1e3f)) {
    throw ShapeError(cat(kOp, ": softcap is ", a.softcap, ", want 0, or 0.001 to 1000"));
  }
}

}  // namespace shale::kernels

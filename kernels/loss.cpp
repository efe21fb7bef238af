#include "shale/kernels/loss.h"

#include "shale/kernels/check.h"

namespace shale::kernels {
namespace {

void check_logits(const char* op, const View& logits) {
  check_dtype(op, "logits", logits, kComputeDTypes);
  if (logits.ndim() == 2 && (logits.cols() == 1 || logits.stride(1) == 1)) return;
  throw ShapeError(cat(op, ": logits is ", logits, " with strides ", logits.strides,
                       ", expected [rows, vocabulary] with contiguous rows"));
}

void check_columns(const char* op, int64_t first_column, int64_t vocab) {
  if (first_column >= 0 && vocab >= 1) return;
  throw ShapeError(cat(op, ": first_column is ", first_column, " and vocab is ", vocab,
                       ", expected first_column of at least 0 and vocab of at least 1"));
}

}  // namespace

void check_args(const CrossEntropyStatsArgs& a) {
  constexpr const char* kOp = "cross_entropy_stats";
  check_logits(kOp, a.logits);
  check_dense(kOp, "targets", a.targets, {a.logits.size(0)}, DType::kI32);
  check_dense(kOp, "stats", a.stats, {a.logits.size(0), 3}, DType::kF32);
  check_columns(kOp, a.first_column, a.vocab);
}

void check_args(const CrossEntropyGradArgs& a) {
  constexpr const char* kOp = "cross_entropy_grad";
  check_logits(kOp, a.logits);
  const int64_t rows = a.logits.size(0);
  check_dense(kOp, "targets", a.targets, {rows}, DType::kI32);
  check_dense(kOp, "stats", a.stats, {a.stats.size(0), rows, 3}, DType::kF32);
  if (a.losses.defined()) check_dense(kOp, "losses", a.losses, {rows}, DType::kF32);
  check_columns(kOp, a.first_column, a.vocab);
  if (a.stats.size(0) >= 1 && a.stats.size(0) <= kMaxVocabularyParts) return;
  throw ShapeError(
      cat(kOp, ": stats has ", a.stats.size(0), " parts, expected 1 to ", kMaxVocabularyParts));
}

void check_args(const CrossEntropyArgs& a) {
  constexpr const char* kOp = "cross_entropy";
  check_logits(kOp, a.logits);
  const int64_t rows = a.logits.size(0);
  check_dense(kOp, "targets", a.targets, {rows}, DType::kI32);
  check_dense(kOp, "losses", a.losses, {rows}, DType::kF32);
  if (a.vocab < 1 || a.vocab > a.logits.cols()) {
    throw ShapeError(
        cat(kOp, ": vocab is ", a.vocab, ", expected 1 to logits' ", a.logits.cols(), " columns"));
  }
  if (a.softcap != 0 && !(a.softcap >= 1e-3f && a.softcap <= 1e3f)) {
    throw ShapeError(cat(kOp, ": softcap is ", a.softcap, ", expected 0, or 0.001 to 1000"));
  }
}

}  // namespace shale::kernels

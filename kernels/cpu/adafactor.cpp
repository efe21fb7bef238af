#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "shale/kernels/cpu/adafactor.cpp"
#include <hwy/foreach_target.h>
//
#include "shale/kernels/adafactor.h"

#include <cmath>

#include "shale/kernels/check.h"
#include "shale/kernels/cpu/adamw-inl.h"
#include "shale/kernels/cpu/parallel.h"
#include "shale/kernels/cpu/row_blocks.h"
#include "shale/kernels/cpu/run.h"

// Threads process blocks of matrix rows. The sums of the blocks are added in block order. A part of
// a parameter may begin and end in the middle of a row.

HWY_BEFORE_NAMESPACE();
namespace shale::kernels::HWY_NAMESPACE {

// Calls fn(row, column, element, n) for the rows [begin, end) of the part; row 0 is the part's
// first row. `row` is the row's number in the matrix. The part has columns [column, column + n) of
// it, which begin at element `element` of the part.
template <class Fn>
void for_row_pieces(const MatrixRange& part, int64_t count, int64_t begin, int64_t end,
                    const Fn& fn) {
  const int64_t last = part.first + count;
  for (int64_t row = part.first / part.cols + begin; row < part.first / part.cols + end; ++row) {
    const int64_t from = std::max(part.first, row * part.cols);
    const int64_t to = std::min(last, (row + 1) * part.cols);
    fn(row, from - row * part.cols, from - part.first, to - from);
  }
}

int64_t rows_of(const MatrixRange& part, int64_t count) {
  return count == 0 ? 0 : (part.first + count - 1) / part.cols - part.first / part.cols + 1;
}

template <typename Grad>
void means_typed(const Exec& exec, const AdafactorMeansArgs& a) {
  const int64_t count = a.grad.numel(), cols = a.part.cols, rows = rows_of(a.part, count);
  const RowBlocks blocks(rows);
  float* partial = scratch<float>("adafactor_means", exec, blocks.count * cols);
  const float inverse_cols = 1.f / static_cast<float>(cols);
  const float inverse_rows = 1.f / static_cast<float>(a.part.rows);
  const float step_clip = exec.step->clip_factor;
  parallel_for(exec, rows, blocks.rows, [&](int64_t begin, int64_t end) {
    const F32Tag d;
    const auto clip = hn::Set(d, step_clip), eps = hn::Set(d, a.eps);
    float* by_column = partial + begin / blocks.rows * cols;
    std::fill(by_column, by_column + cols, 0.f);
    for_row_pieces(a.part, count, begin, end,
                   [&](int64_t row, int64_t column, int64_t element, int64_t n) {
                     TurnSum by_row;
                     const Grad* grad = a.grad.as<Grad>() + element;
                     float* sums = by_column + column;
                     for_vectors_in_turns(n, [&](int64_t i, auto part, auto turn) HWY_ATTR {
                       const auto g = hn::Mul(clip, load(grad + i, part));
                       const auto square = inside(hn::MulAdd(g, g, eps), part);
                       store(hn::Add(load(sums + i, part), square), sums + i, part);
                       by_row.add(square, turn);
                     });
                     a.row_mean.as<float>()[row] += by_row.total() * inverse_cols;
                   });
    for_vectors(cols, [&](int64_t i, auto part) HWY_ATTR {
      const auto scaled = hn::Mul(load(by_column + i, part), hn::Set(F32Tag(), inverse_rows));
      store(scaled, by_column + i, part);
    });
  });
  combine_blocks(exec, partial, blocks.count, cols, {.out = a.col_mean, .accumulate = true});
}

// Factors of the update u_ij = g_ij * of_row(i) * by_column[j].
struct UpdateFactors {
  float clip;
  float mean_row;
  const float* row;
  const float* by_column;
  float of_row(int64_t i) const { return clip * std::sqrt(mean_row / row[i]); }
};

UpdateFactors update_factors(const Exec& exec, const View& row, const View& col, float* memory) {
  double sum = 0;
  for (int64_t i = 0; i < row.numel(); ++i) sum += double{row.as<float>()[i]};
  for (int64_t j = 0; j < col.numel(); ++j) memory[j] = 1.f / std::sqrt(col.as<float>()[j]);
  return {.clip = exec.step->clip_factor,
          .mean_row = static_cast<float>(sum / static_cast<double>(row.numel())),
          .row = row.as<float>(),
          .by_column = memory};
}

void add_in_order(const View& sum, const double* partial, int64_t count) {
  double total = 0;
  for (int64_t i = 0; i < count; ++i) total += partial[i];
  *sum.as<float>() += static_cast<float>(total);
}

template <typename Grad>
void matrix_squares(const Exec& exec, const AdafactorSquaresArgs& a) {
  const int64_t count = a.grad.numel(), cols = a.part.cols, rows = rows_of(a.part, count);
  const RowBlocks blocks(rows);
  auto* partial = scratch<double>("adafactor_squares", exec, blocks.count + (cols + 1) / 2);
  const UpdateFactors f =
      update_factors(exec, a.row, a.col, reinterpret_cast<float*>(partial + blocks.count));
  parallel_for(exec, rows, blocks.rows, [&](int64_t begin, int64_t end) {
    double block = 0;
    for_row_pieces(a.part, count, begin, end,
                   [&](int64_t row, int64_t column, int64_t element, int64_t n) {
                     TurnSum squares;
                     const auto of_row = hn::Set(F32Tag(), f.of_row(row));
                     const Grad* grad = a.grad.as<Grad>() + element;
                     for_vectors_in_turns(n, [&](int64_t i, auto part, auto turn) HWY_ATTR {
                       const auto g = hn::Mul(of_row, load(grad + i, part));
                       const auto u = hn::Mul(g, load(f.by_column + column + i, part));
                       squares.add_product(u, u, turn);
                     });
                     block += double{squares.total()};
                   });
    partial[begin / blocks.rows] = block;
  });
  add_in_order(a.sum, partial, blocks.count);
}

template <typename Grad>
void vector_squares(const Exec& exec, const AdafactorSquaresArgs& a) {
  const int64_t count = a.grad.numel(), blocks = (count + kOptimGrain - 1) / kOptimGrain;
  auto* partial = scratch<double>("adafactor_squares", exec, blocks);
  const float step_clip = exec.step->clip_factor, gamma = exec.step->bias_correction2;
  parallel_for(exec, count, kOptimGrain, [&](int64_t begin, int64_t end) {
    const F32Tag d;
    const auto clip = hn::Set(d, step_clip), newest = hn::Set(d, gamma);
    const auto former = hn::Set(d, 1.f - gamma), eps = hn::Set(d, a.eps);
    TurnSum squares;
    for_vectors_in_turns(end - begin, [&](int64_t i, auto part, auto turn) HWY_ATTR {
      const auto g = hn::Mul(clip, load(a.grad.as<Grad>() + begin + i, part));
      const auto square = hn::MulAdd(g, g, eps);
      float* v = a.v.as<float>() + begin + i;
      const auto new_v = hn::MulAdd(former, load(v, part), hn::Mul(newest, square));
      store(new_v, v, part);
      const auto u = hn::Div(g, hn::Sqrt(new_v));
      squares.add_product(inside(u, part), inside(u, part), turn);
    });
    partial[begin / kOptimGrain] = double{squares.total()};
  });
  add_in_order(a.sum, partial, blocks);
}

void average_target(const Exec& exec, const AdafactorAverageArgs& a) {
  const float gamma = exec.step->bias_correction2;
  parallel_for(exec, a.mean.numel(), kOptimGrain, [&](int64_t begin, int64_t end) {
    const F32Tag d;
    const auto newest = hn::Set(d, gamma), former = hn::Set(d, 1.f - gamma);
    for_vectors(end - begin, [&](int64_t i, auto part) HWY_ATTR {
      float* mean = a.mean.as<float>() + begin + i;
      const auto found = hn::Mul(newest, load(a.newest.as<float>() + begin + i, part));
      store(hn::MulAdd(former, load(mean, part), found), mean, part);
    });
  });
}

// Factors of the step w -= lr * (u * over_rms + decay * w) for a range of a row; u(i, part) is the
// update before clipping.
struct StepFactors {
  float lr, over_rms, decay;
};

template <typename Grad, typename Param, class Update>
HWY_INLINE void step_piece(const StepFactors& f, const OptimSpanView<Grad, Param>& span, int64_t n,
                           const Update& update) {
  const F32Tag d;
  const auto lr = hn::Set(d, f.lr), over = hn::Set(d, f.over_rms), decay = hn::Set(d, f.decay);
  for_vectors(n, [&](int64_t i, auto part) HWY_ATTR {
    const auto w = load(span.master + i, part);
    const auto direction = hn::MulAdd(decay, w, hn::Mul(update(i, part), over));
    store_weights(hn::NegMulAdd(lr, direction, w), span, i, part);
  });
}

template <typename Grad, typename Param>
void adafactor_typed(const Exec& exec, const AdafactorArgs& a) {
  const int64_t count = a.grad.numel(), cols = a.part.cols, rows = rows_of(a.part, count);
  const auto numel = static_cast<float>(a.part.rows * cols);
  const float rms = std::sqrt(*a.square_sum.as<float>() / numel);
  const StepFactors f = {.lr = exec.step->lr * a.lr_factor,
                         .over_rms = 1.f / std::max(1.f, rms / a.clip_rms),
                         .decay = a.weight_decay};
  const OptimSpanView<Grad, Param> span(a);
  const Grad* grad = span.grad;
  if (a.v.defined()) {
    const float step_clip = exec.step->clip_factor;
    parallel_for(exec, count, kOptimGrain, [&](int64_t begin, int64_t end) {
      const auto clip = hn::Set(F32Tag(), step_clip);
      step_piece(f, span.from(begin), end - begin, [&](int64_t i, auto part) HWY_ATTR {
        const auto g = hn::Mul(clip, load(grad + begin + i, part));
        return hn::Div(g, hn::Sqrt(load(a.v.as<float>() + begin + i, part)));
      });
    });
    return;
  }
  const UpdateFactors u =
      update_factors(exec, a.row, a.col, scratch<float>("adafactor", exec, cols));
  parallel_for(exec, rows, RowBlocks(rows).rows, [&](int64_t begin, int64_t end) {
    for_row_pieces(a.part, count, begin, end,
                   [&](int64_t row, int64_t column, int64_t element, int64_t n) {
                     const auto of_row = hn::Set(F32Tag(), u.of_row(row));
                     step_piece(f, span.from(element), n, [&](int64_t i, auto part) HWY_ATTR {
                       const auto g = hn::Mul(of_row, load(grad + element + i, part));
                       return hn::Mul(g, load(u.by_column + column + i, part));
                     });
                   });
  });
}

void means_target(const Exec& exec, const AdafactorMeansArgs& a) {
  a.grad.dtype == DType::kBF16 ? means_typed<bf16>(exec, a) : means_typed<float>(exec, a);
}

void squares_target(const Exec& exec, const AdafactorSquaresArgs& a) {
  const bool is_bf16 = a.grad.dtype == DType::kBF16;
  if (a.v.defined()) {
    is_bf16 ? vector_squares<bf16>(exec, a) : vector_squares<float>(exec, a);
  } else {
    is_bf16 ? matrix_squares<bf16>(exec, a) : matrix_squares<float>(exec, a);
  }
}

void adafactor_target(const Exec& exec, const AdafactorArgs& a) {
  dispatch_optim(a.grad, a.param,
                 [&]<typename Grad, typename Param>() { adafactor_typed<Grad, Param>(exec, a); });
}

}  // namespace shale::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace shale::kernels {
HWY_EXPORT(means_target);
HWY_EXPORT(average_target);
HWY_EXPORT(squares_target);
HWY_EXPORT(adafactor_target);
template <>
void cpu::run(const Exec& exec, const AdafactorMeansArgs& a) {
  if (step_of("adafactor_means", exec).non_finite != 0 || a.grad.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(means_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const AdafactorAverageArgs& a) {
  if (step_of("adafactor_average", exec).non_finite != 0) return;
  HWY_DYNAMIC_DISPATCH(average_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const AdafactorSquaresArgs& a) {
  if (step_of("adafactor_squares", exec).non_finite != 0 || a.grad.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(squares_target)(exec, a);
}

template <>
void cpu::run(const Exec& exec, const AdafactorArgs& a) {
  if (step_of("adafactor", exec).non_finite != 0 || a.grad.numel() == 0) return;
  HWY_DYNAMIC_DISPATCH(adafactor_target)(exec, a);
}

}  // namespace shale::kernels
#endif

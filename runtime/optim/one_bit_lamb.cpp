#include "shale/runtime/optim/one_bit_lamb.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/pointwise_formula.h"
#include "shale/kernels/reduce_dims.h"
#include "shale/runtime/tensor/context.h"

namespace shale::optim {
namespace {

using Formula = kernels::PointwiseFormula;
using kernels::PointwiseGraph;
using kernels::PointwiseOp;

// Of states(), as they are added.
enum State : size_t { kM, kV, kFresh };

// m, what it was before, v, fresh, and whether a gradient was not finite: the new fresh, and
// by how much v is larger.
kernels::PointwiseProgram refresh_program(const LambOptions& options) {
  PointwiseGraph graph;
  const auto input = [&](DType dtype) { return Formula(graph, graph.input(dtype)); };
  const Formula m = input(DType::kF32), before = input(DType::kF32), v = input(DType::kF32);
  const Formula fresh = input(DType::kF32), skips = input(DType::kU8);
  const Formula grad = (m - m.number(options.beta1) * before) / m.number(1.f - options.beta1);
  const Formula newest =
      m.number(options.beta2) * fresh + m.number(1.f - options.beta2) * (grad * grad);
  const Formula kept = skips.choose(fresh, newest), eps = m.number(options.eps);
  const auto root = [&](const Formula& x) { return x.of(PointwiseOp::kSqrt) + eps; };
  return graph.compile("1bit-lamb", {kept.value(), (root(v) / root(kept)).value()});
}

// The mean of ratios, the newest ratio, and whether a gradient was not finite: the new mean.
kernels::PointwiseProgram mean_program(float beta) {
  PointwiseGraph graph;
  const auto input = [&](DType dtype) { return Formula(graph, graph.input(dtype)); };
  const Formula mean = input(DType::kF32), ratio = input(DType::kF32), skips = input(DType::kU8);
  const Formula newest = mean.number(beta) * mean + mean.number(1.f - beta) * ratio;
  return graph.compile("1bit-lamb", {skips.choose(mean, newest).value()});
}

// The largest of a parameter, norms of its update without and with decay, its last factor and its
// mean, and whether a gradient was not finite: the new factor, and what is in a ratio's place.
kernels::PointwiseProgram factor_program(const OneBitLambOptions& options) {
  PointwiseGraph graph;
  const auto input = [&](DType dtype) { return Formula(graph, graph.input(dtype)); };
  const Formula largest = input(DType::kF32), adam = input(DType::kF32), all = input(DType::kF32);
  const Formula last = input(DType::kF32), mean = input(DType::kF32), skips = input(DType::kU8);
  const Formula one = last.number(1);
  const auto inside = [](const Formula& x, const Formula& least, const Formula& most) {
    return x.with(PointwiseOp::kMaximum, least).with(PointwiseOp::kMinimum, most);
  };
  const Formula share =
      (last.number(0) < all).choose((adam / all).with(PointwiseOp::kMinimum, one), one);
  const Formula wanted = inside(largest * share + (one - share), last.number(options.factor_min),
                                last.number(options.factor_max));
  const Formula factor =
      skips.choose(last, inside(wanted, last * last.number(1 - options.factor_change),
                                last * last.number(1 + options.factor_change)));
  return graph.compile("1bit-lamb", {factor.value(), (mean * factor).value()});
}

Tensor vector_like(const Tensor& x, int64_t count) {
  return empty(x.context(), {count}, DType::kF32, MemoryTag::kOptimizer, "1bit-lamb");
}

}  // namespace

OneBitLamb::OneBitLamb(std::vector<OptimShard> shards, const OneBitLambOptions& options)
    : OneBitOptimizer("1bit-lamb", std::move(shards), options.lamb.weight_decay,
                      options.freeze_step, Runs::kOfParameters),
      options_(options),
      steps_("1bit-lamb", this->shards(), options.lamb) {
  add_states("m");
  add_states("v");
  add_states("fresh");
  add_error_states();
  if (steps_.count() == 0) return;
  const Tensor& like = this->shards().front().grad;
  means_ = vector_like(like, steps_.count());
  factors_ = vector_like(like, steps_.count());
  rates_ = vector_like(like, steps_.count());
  kernels::fill(like.exec(), {.y = means_, .value = 0});
  kernels::fill(like.exec(), {.y = factors_, .value = 1});
}

void OneBitLamb::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.lamb.beta1, done + 1);
  values.bias_correction2 = is_frozen() ? 1 : correction(options_.lamb.beta2, done + 1);
}

LambSpan OneBitLamb::span_of(size_t shard, const OptimRun& run) const {
  return {.master = part(shards()[shard].master, run),
          .m = part(state(shard, kM), run),
          .v = part(state(shard, kV), run),
          .weight_decay = run.weight_decay};
}

void OneBitLamb::begin_step() {
  if (shards().empty()) return;
  hold_values();  // throws for shards that were clipped apart: kernels are called with one's values
  const Exec exec = this->exec(0);
  steps_.begin_norms(exec);
  if (!is_frozen()) return add_gradients(exec);
  if (is_first_frozen()) freeze();
  step_frozen(exec);
}

// LAMB, and the means of its ratios.
void OneBitLamb::add_gradients(const Exec& exec) {
  for (size_t i = 0; i < shards().size(); ++i) {
    for (const OptimRun& run : runs(i)) {
      const LambSpan span = span_of(i, run);
      steps_.add_gradient(exec, part(shards()[i].grad, run), span.m, span.v);
      steps_.add_norms(exec, steps_.number_of(*run.parameter), span);
    }
  }
  steps_.join_norms(exec);
  const Tensor ratios = vector_like(means_, steps_.count());
  steps_.make_ratios(exec, ratios);
  steps_.make_rates(exec, ratios, rates_);
  const Tensor means = vector_like(means_, steps_.count());
  const kernels::PointwiseProgram program = mean_program(options_.ratio_beta);
  kernels::PointwiseArgs args{.program = &program};
  args.inputs = {means_, ratios, skips_of(exec, steps_.count())};
  args.outputs = {means};
  kernels::pointwise(exec, args);
  kernels::axpby(exec, {.a = means, .y = means_});
}

// Once, whether the first step after the freeze is skipped or not.
void OneBitLamb::freeze() {
  check_frozen();
  const float scale = 1 / correction(options_.lamb.beta2, updates_done());
  for (size_t i = 0; i < shards().size(); ++i) {
    const Tensor &v = state(i, kV), &fresh = state(i, kFresh);
    kernels::axpby(v.exec(), {.a = v, .y = v, .alpha = scale});
    kernels::axpby(v.exec(), {.a = v, .y = fresh});
  }
  // A mean that began at 0.
  kernels::axpby(
      means_.exec(),
      {.a = means_, .y = means_, .alpha = 1 / correction(options_.ratio_beta, updates_done())});
}

void OneBitLamb::step_frozen(const Exec& exec) {
  std::vector<Tensor> before;
  for (const Tensor& m : states_of(kM)) {
    before.push_back(vector_like(m, m.numel()));
    kernels::axpby(exec, {.a = m, .y = before.back()});
  }
  average(states_of(kM), kV, options_.lamb.beta1, 1.f - options_.lamb.beta1);
  const Tensor largest = vector_like(means_, steps_.count());
  refresh(exec, before, largest);
  steps_.join_norms(exec);
  const Tensor factors = vector_like(means_, steps_.count());
  const Tensor ratios = vector_like(means_, steps_.count());
  const kernels::PointwiseProgram program = factor_program(options_);
  kernels::PointwiseArgs args{.program = &program};
  args.inputs = {largest, steps_.first_norms(),          steps_.second_norms(), factors_,
                 means_,  skips_of(exec, steps_.count())};
  args.outputs = {factors, ratios};
  kernels::pointwise(exec, args);
  kernels::axpby(exec, {.a = factors, .y = factors_});
  steps_.make_rates(exec, ratios, rates_);
}

void OneBitLamb::refresh(const Exec& exec, const std::vector<Tensor>& before,
                         const Tensor& largest) {
  const int64_t count = steps_.count();
  kernels::fill(exec, {.y = largest, .value = 0});
  for (size_t i = 0; i < shards().size(); ++i) {
    for (const OptimRun& run : runs(i)) {
      refresh_run(exec, i, run, part(before[i], run), largest);
      steps_.add_update_norms(exec, steps_.number_of(*run.parameter), span_of(i, run));
    }
  }
  if (steps_.peers() == nullptr || steps_.peers()->size == 1) return;
  const Tensor all = steps_.peers()->gather(largest);
  const int64_t ranks = all.numel() / count;
  kernels::reduce_dims(exec, {.x = make_view(all.data(), DType::kF32, {ranks, count}),
                              .y = make_view(largest.data(), DType::kF32, {1, count}),
                              .op = kernels::ReduceOp::kMax});
}

// In pieces, whose temporary memory stays in cache.
void OneBitLamb::refresh_run(const Exec& exec, size_t shard, const OptimRun& run,
                             const View& before, const Tensor& largest) {
  constexpr int64_t kPiece = int64_t{1} << 18;
  const LambSpan span = span_of(shard, run);
  const View fresh = part(state(shard, kFresh), run);
  const int64_t most = std::min(kPiece, run.count);
  const int64_t pieces = (run.count + kPiece - 1) / kPiece;
  const Tensor newest = vector_like(largest, most), ratios = vector_like(largest, most);
  const Tensor of_pieces = vector_like(largest, pieces);
  const kernels::PointwiseProgram program = refresh_program(options_.lamb);
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t begin = i * kPiece, size = std::min(kPiece, run.count - begin);
    kernels::PointwiseArgs args{.program = &program};
    args.inputs = {span.m.flat(begin, size), before.flat(begin, size), span.v.flat(begin, size),
                   fresh.flat(begin, size), skips_of(exec, size)};
    args.outputs = {vector_slice(newest, 0, size), vector_slice(ratios, 0, size)};
    kernels::pointwise(exec, args);
    kernels::axpby(exec, {.a = args.outputs[0], .y = fresh.flat(begin, size)});
    kernels::reduce_dims(
        exec,
        {.x = args.outputs[1], .y = vector_slice(of_pieces, i, 1), .op = kernels::ReduceOp::kMax});
  }
  kernels::reduce_dims(exec, {.x = of_pieces,
                              .y = vector_slice(largest, steps_.number_of(*run.parameter), 1),
                              .op = kernels::ReduceOp::kMax});
}

void OneBitLamb::step_run(size_t shard, const OptimRun& run, const View& compute) {
  LambSpan span = span_of(shard, run);
  span.compute = compute;
  steps_.step(exec(shard), rates_, steps_.number_of(*run.parameter), span);
}

std::vector<StatePart> OneBitLamb::own_state_parts() const {
  std::vector<StatePart> parts = OneBitOptimizer::own_state_parts();
  for (int64_t i = 0; i < steps_.count(); ++i) {
    const Parameter& parameter = steps_.parameter(i);
    for (const auto& [name, of_all] :
         {std::pair("ratio", &means_), std::pair("factor", &factors_)}) {
      parts.push_back({.name = cat(parameter.full_name(), "/", name),
                       .parameter = &parameter,
                       .shape = {1},
                       .values = vector_slice(*of_all, i, 1),
                       .is_whole = true});
    }
  }
  return parts;
}

}  // namespace shale::optim

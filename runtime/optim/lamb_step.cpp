#include "shale/runtime/optim/lamb_step.h"

#include <algorithm>
#include <bit>
#include <functional>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/pointwise_formula.h"
#include "shale/runtime/tensor/context.h"

namespace shale::optim {
namespace {

using Formula = kernels::PointwiseFormula;
using kernels::PointwiseGraph;
using kernels::PointwiseOp;

// Elements that are stepped at once, of which temporary memory is made: they stay in cache. A
// multiple of kernels::kNormBlock.
constexpr int64_t kPiece = int64_t{1} << 18;

void for_pieces(int64_t count, const std::function<void(int64_t begin, int64_t size)>& fn) {
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    fn(begin, std::min(kPiece, count - begin));
  }
}

LambSpan piece_of(const LambSpan& span, int64_t begin, int64_t size) {
  LambSpan piece = span;
  for (View* const x : {&piece.master, &piece.m, &piece.v, &piece.compute}) {
    if (x->defined()) *x = x->flat(begin, size);
  }
  return piece;
}

// m, v and their corrections.
kernels::PointwiseProgram direction_program(float eps) {
  PointwiseGraph graph;
  const auto input = [&] { return Formula(graph, graph.input(DType::kF32)); };
  const Formula m = input(), v = input(), correction1 = input(), correction2 = input();
  const Formula root = (v / correction2).of(PointwiseOp::kSqrt);
  return graph.compile("lamb", {(m / correction1 / (root + m.number(eps))).value()});
}

// The norms of weights and of updates, and whether the parameter adapts.
kernels::PointwiseProgram ratio_program(float least, float most) {
  PointwiseGraph graph;
  const auto input = [&] { return Formula(graph, graph.input(DType::kF32)); };
  const Formula weights = input(), updates = input(), adapts = input();
  const Formula zero = weights.number(0), one = weights.number(1);
  const Formula ratio = (weights / updates)
                            .with(PointwiseOp::kMaximum, weights.number(least))
                            .with(PointwiseOp::kMinimum, weights.number(most));
  const Formula has_both = (zero < weights) * (zero < updates) * adapts;
  return graph.compile("lamb", {has_both.choose(ratio, one).value()});
}

// Ratios, the factors of rates, the rate, and whether a gradient was not finite.
kernels::PointwiseProgram rate_program() {
  PointwiseGraph graph;
  const auto input = [&](DType dtype) { return Formula(graph, graph.input(dtype)); };
  const Formula ratio = input(DType::kF32), factor = input(DType::kF32), lr = input(DType::kF32);
  const Formula skips = input(DType::kU8);
  return graph.compile("lamb", {skips.choose(ratio.number(0), ratio * factor * lr).value()});
}

void check_shard(const char* name, const OptimShard& shard, const ShardPeers* peers) {
  const bool is_elsewhere = &shard.master.context() != &shard.grad.context();
  if (shard.fence != nullptr || is_elsewhere) {
    throw ConfigError(cat(name, ": ", shard.name,
                          " is to be stepped in host memory, or while forward goes on; want all on "
                          "the device: norms over ranks come before"));
  }
  for (const OptimSpan& span : shard.spans) {
    const Parameter& parameter = *span.parameter;
    if (!lacks_parts(span, peers)) continue;
    throw ConfigError(cat(name, ": ", shard.name, " has ", span.count, " of the ",
                          parameter.whole.numel(), " elements of ", parameter.full_name(),
                          ", want OptimShard::peers with the ranks that have the others"));
  }
}

}  // namespace

View repeated(const void* value, DType dtype, int64_t count) {
  View view = make_view(const_cast<void*>(value), dtype, {count});
  view.strides = {0};
  return view;
}

View skips_of(const Exec& exec, int64_t count) {
  static_assert(std::endian::native == std::endian::little);
  return repeated(&exec.step->non_finite, DType::kU8, count);
}

LambStep::LambStep(const char* name, const std::vector<OptimShard>& shards,
                   const LambOptions& options)
    : options_(options), peers_(all_peers_of(name, shards)) {
  if (!(options.trust_min >= 0 && options.trust_max > 0 &&
        options.trust_min <= options.trust_max)) {
    throw ConfigError(cat(name, ": the limits of the trust ratio are ", options.trust_min, " and ",
                          options.trust_max, ", want the first at least 0 and at most the second"));
  }
  std::vector<float> adapts, lr_factors;
  for (const OptimShard& shard : shards) {
    check_shard(name, shard, peers_);
    for (const OptimSpan& span : shard.spans) {
      const Parameter& parameter = *span.parameter;
      if (!numbers_.try_emplace(parameter.full_name(), count()).second) continue;
      parameters_.push_back(&parameter);
      adapts.push_back(parameter.decay ? 1.f : 0.f);
      lr_factors.push_back(span.options.lr_factor);
    }
  }
  if (parameters_.empty()) return;
  Context& context = shards.front().grad.context();
  context_ = &context;
  norms_.emplace(context, peers_, 2 * count());
  adapts_ = from_host<float>(context, adapts, {count()});
  lr_factors_ = from_host<float>(context, lr_factors, {count()});
}

Tensor LambStep::temporary(int64_t count) const {
  return empty(*context_, {std::min(kPiece, count)}, DType::kF32, MemoryTag::kOptimizer, "lamb");
}

int64_t LambStep::number_of(const Parameter& parameter) const {
  return numbers_.at(parameter.full_name());
}

// The kernel's weights are not wanted, which AdamW's arithmetic of moments brings.
void LambStep::add_gradient(const Exec& exec, const View& grad, const View& m,
                            const View& v) const {
  const Tensor weights = temporary(m.numel());
  kernels::fill(exec, {.y = weights, .value = 0});
  for_pieces(m.numel(), [&](int64_t begin, int64_t size) {
    kernels::adamw(exec, {.master = vector_slice(weights, 0, size),
                          .grad = grad.flat(begin, size),
                          .m = m.flat(begin, size),
                          .v = v.flat(begin, size),
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps});
  });
}

void LambStep::direction(const Exec& exec, const LambSpan& span, const Tensor& adam,
                         const Tensor& update) const {
  const int64_t count = adam.numel();
  const kernels::PointwiseProgram program = direction_program(options_.eps);
  kernels::PointwiseArgs args{.program = &program};
  args.inputs = {span.m, span.v, repeated(&exec.step->bias_correction1, DType::kF32, count),
                 repeated(&exec.step->bias_correction2, DType::kF32, count)};
  args.outputs = {adam};
  kernels::pointwise(exec, args);
  kernels::axpby(exec, {.a = adam, .b = span.master, .y = update, .beta = span.weight_decay});
}

void LambStep::begin_norms(const Exec& exec) {
  norms_->forget(exec);
}

void LambStep::add_pieces(const Exec& exec, int64_t number, const LambSpan& span, bool of_weights) {
  if (!parameter(number).partition.counts()) return;
  const Tensor adam = temporary(span.m.numel()), update = temporary(span.m.numel());
  for_pieces(span.m.numel(), [&](int64_t begin, int64_t size) {
    const LambSpan piece = piece_of(span, begin, size);
    const Tensor of_adam = vector_slice(adam, 0, size), u = vector_slice(update, 0, size);
    direction(exec, piece, of_adam, u);
    norms_->add(exec, number, of_weights ? piece.master : of_adam.view());
    norms_->add(exec, count() + number, u);
  });
}

void LambStep::add_norms(const Exec& exec, int64_t number, const LambSpan& span) {
  add_pieces(exec, number, span, /*of_weights=*/true);
}

void LambStep::add_update_norms(const Exec& exec, int64_t number, const LambSpan& span) {
  add_pieces(exec, number, span, /*of_weights=*/false);
}

void LambStep::make_ratios(const Exec& exec, const Tensor& ratios) const {
  const kernels::PointwiseProgram program = ratio_program(options_.trust_min, options_.trust_max);
  kernels::PointwiseArgs args{.program = &program};
  args.inputs = {first_norms(), second_norms(), adapts_};
  args.outputs = {ratios};
  kernels::pointwise(exec, args);
}

void LambStep::make_rates(const Exec& exec, const View& ratios, const Tensor& rates) const {
  const kernels::PointwiseProgram program = rate_program();
  kernels::PointwiseArgs args{.program = &program};
  args.inputs = {ratios, lr_factors_, repeated(&exec.step->lr, DType::kF32, count()),
                 skips_of(exec, count())};
  args.outputs = {rates};
  kernels::pointwise(exec, args);
}

void LambStep::step(const Exec& exec, const Tensor& rates, int64_t number,
                    const LambSpan& span) const {
  const Tensor adam = temporary(span.m.numel()), update = temporary(span.m.numel());
  const Tensor rate = vector_slice(rates, number, 1);
  for_pieces(span.m.numel(), [&](int64_t begin, int64_t size) {
    const LambSpan piece = piece_of(span, begin, size);
    const Tensor of_adam = vector_slice(adam, 0, size), u = vector_slice(update, 0, size);
    direction(exec, piece, of_adam, u);
    kernels::mul(exec, {.a = u, .b = rate, .y = of_adam});
    kernels::axpby(exec, {.a = piece.master, .b = of_adam, .y = piece.master, .beta = -1});
    if (piece.compute.defined()) {
      kernels::axpby(exec, {.a = piece.master, .y = piece.compute});
    }
  });
}

}  // namespace shale::optim

#include "shale/runtime/optim/lamb.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

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

// Index of a state in states(). States are in the order in which they were added.
enum State : size_t { kM, kV };

// Maximum number of elements processed at a time. Temporary tensors have this size, so they stay in
// cache. A multiple of kernels::kNormBlock.
constexpr int64_t kPiece = int64_t{1} << 18;

void for_pieces(int64_t count, const std::function<void(int64_t begin, int64_t size)>& fn) {
  for (int64_t begin = 0; begin < count; begin += kPiece) {
    fn(begin, std::min(kPiece, count - begin));
  }
}

// Program with inputs m, v and their bias corrections. Its output is AdamW's update without decay.
kernels::PointwiseProgram direction_program(float eps) {
  PointwiseGraph graph;
  const auto input = [&] { return Formula(graph, graph.input(DType::kF32)); };
  const Formula m = input(), v = input(), correction1 = input(), correction2 = input();
  const Formula root = (v / correction2).of(PointwiseOp::kSqrt);
  return graph.compile("lamb", {(m / correction1 / (root + m.number(eps))).value()});
}

// Program with these inputs: norms of the weights, norms of the updates, and a flag that enables
// trust-ratio scaling. Its output is the trust ratio.
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

// Program with these inputs: trust ratios, learning-rate factors, the learning rate, and a flag
// that is not 0 for a non-finite gradient. Its output is the learning rate of each parameter.
kernels::PointwiseProgram rate_program() {
  PointwiseGraph graph;
  const auto input = [&](DType dtype) { return Formula(graph, graph.input(dtype)); };
  const Formula ratio = input(DType::kF32), factor = input(DType::kF32), lr = input(DType::kF32);
  const Formula skips = input(DType::kU8);
  return graph.compile("lamb", {skips.choose(ratio.number(0), ratio * factor * lr).value()});
}

void check_shard(const OptimShard& shard, const ShardPeers* peers) {
  const bool is_elsewhere = &shard.master.context() != &shard.grad.context();
  if (shard.fence != nullptr || is_elsewhere) {
    throw ConfigError(cat("lamb: ", shard.name,
                          " cannot be updated in host memory or during forward, because norms over "
                          "ranks are needed first; do not offload"));
  }
  for (const OptimSpan& span : shard.spans) {
    const Parameter& parameter = *span.parameter;
    if (!lacks_parts(span, peers)) continue;
    throw ConfigError(cat("lamb: ", shard.name, " has ", span.count, " of the ",
                          parameter.whole.numel(), " elements of ", parameter.full_name(),
                          "; set OptimShard::peers to the ranks that have its other elements"));
  }
}

// Returns a view of a single value as a vector of `count` equal elements.
View repeated(const void* value, DType dtype, int64_t count) {
  View view = make_view(const_cast<void*>(value), dtype, {count});
  view.strides = {0};
  return view;
}

}  // namespace

Lamb::Lamb(std::vector<OptimShard> shards, const LambOptions& options)
    : ElementwiseOptimizer(std::move(shards), options.weight_decay, Runs::kOfParameters),
      options_(options),
      peers_(all_peers_of("lamb", this->shards())) {
  if (!(options.trust_min >= 0 && options.trust_max > 0 &&
        options.trust_min <= options.trust_max)) {
    throw ConfigError(cat("lamb: the limits of the trust ratio (trust_min, trust_max) are ",
                          options.trust_min, " and ", options.trust_max,
                          ", expected 0 <= trust_min <= trust_max"));
  }
  std::vector<float> adapts, lr_factors;
  for (const OptimShard& shard : this->shards()) {
    check_shard(shard, peers_);
    for (const OptimSpan& span : shard.spans) {
      const Parameter& parameter = *span.parameter;
      if (!numbers_.try_emplace(parameter.full_name(), count()).second) continue;
      parameters_.push_back(&parameter);
      adapts.push_back(parameter.decay ? 1.f : 0.f);
      lr_factors.push_back(span.options.lr_factor);
    }
  }
  add_states("m");
  add_states("v");
  if (parameters_.empty()) return;
  Context& context = this->shards().front().grad.context();
  norms_.emplace(context, peers_, 2 * count());
  adapts_ = from_host<float>(context, adapts, {count()});
  lr_factors_ = from_host<float>(context, lr_factors, {count()});
  ratios_ = empty(context, {count()}, DType::kF32, MemoryTag::kOptimizer, "lamb");
  rates_ = empty(context, {count()}, DType::kF32, MemoryTag::kOptimizer, "lamb");
}

void Lamb::set_corrections(StepState& values, int64_t done) const {
  values.bias_correction1 = correction(options_.beta1, done + 1);
  values.bias_correction2 = correction(options_.beta2, done + 1);
}

Lamb::Span Lamb::span_of(size_t shard, const OptimRun& run) const {
  return {.master = part(shards()[shard].master, run),
          .m = part(state(shard, kM), run),
          .v = part(state(shard, kV), run),
          .weight_decay = run.weight_decay};
}

Lamb::Span Lamb::piece_of(const Span& span, int64_t begin, int64_t size) {
  Span piece = span;
  for (View* const x : {&piece.master, &piece.m, &piece.v, &piece.compute}) {
    if (x->defined()) *x = x->flat(begin, size);
  }
  return piece;
}

int64_t Lamb::number_of(const Parameter& parameter) const {
  return numbers_.at(parameter.full_name());
}

Tensor Lamb::temporary(int64_t count) const {
  return empty(shards().front().grad.context(), {std::min(kPiece, count)}, DType::kF32,
               MemoryTag::kOptimizer, "lamb");
}

void Lamb::begin_step() {
  if (count() == 0) return;
  // Throws if shards were clipped separately, because kernels use one shard's values.
  hold_values();
  const Exec exec = this->exec(0);
  norms_->forget(exec);
  for (size_t i = 0; i < shards().size(); ++i) {
    for (const OptimRun& run : runs(i)) {
      const Span span = span_of(i, run);
      add_gradient(exec, part(shards()[i].grad, run), span);
      if (shards()[i].repeats) continue;
      add_norms(exec, number_of(*run.parameter), span);
    }
  }
  norms_->join(exec);
  make_rates(exec);
}

// Updates the moments with AdamW's kernel. The weights that it computes are temporary and not used.
void Lamb::add_gradient(const Exec& exec, const View& grad, const Span& span) const {
  const Tensor weights = temporary(span.m.numel());
  kernels::fill(exec, {.y = weights, .value = 0});
  for_pieces(span.m.numel(), [&](int64_t begin, int64_t size) {
    kernels::adamw(exec, {.master = vector_slice(weights, 0, size),
                          .grad = grad.flat(begin, size),
                          .m = span.m.flat(begin, size),
                          .v = span.v.flat(begin, size),
                          .beta1 = options_.beta1,
                          .beta2 = options_.beta2,
                          .eps = options_.eps});
  });
}

void Lamb::add_norms(const Exec& exec, int64_t number, const Span& span) {
  if (!parameters_[static_cast<size_t>(number)]->sharding.counts()) return;
  const Tensor adam = temporary(span.m.numel()), update = temporary(span.m.numel());
  for_pieces(span.m.numel(), [&](int64_t begin, int64_t size) {
    const Span piece = piece_of(span, begin, size);
    const Tensor u = vector_slice(update, 0, size);
    direction(exec, piece, vector_slice(adam, 0, size), u);
    norms_->add(exec, number, piece.master);
    norms_->add(exec, count() + number, u);
  });
}

void Lamb::make_rates(const Exec& exec) {
  const kernels::PointwiseProgram to_ratios = ratio_program(options_.trust_min, options_.trust_max);
  kernels::PointwiseArgs ratios{.program = &to_ratios};
  ratios.inputs = {norms_->norms(0, count()), norms_->norms(count(), count()), adapts_};
  ratios.outputs = {ratios_};
  kernels::pointwise(exec, ratios);
  // PointwiseOp supports u8 and not u32, so the low byte of non_finite is the flag.
  static_assert(std::endian::native == std::endian::little);
  const View skips = repeated(&exec.step->non_finite, DType::kU8, count());
  const kernels::PointwiseProgram to_rates = rate_program();
  kernels::PointwiseArgs rates{.program = &to_rates};
  rates.inputs = {ratios_, lr_factors_, repeated(&exec.step->lr, DType::kF32, count()), skips};
  rates.outputs = {rates_};
  kernels::pointwise(exec, rates);
}

void Lamb::direction(const Exec& exec, const Span& span, const Tensor& adam,
                     const Tensor& update) const {
  const int64_t size = adam.numel();
  const kernels::PointwiseProgram program = direction_program(options_.eps);
  kernels::PointwiseArgs args{.program = &program};
  args.inputs = {span.m, span.v, repeated(&exec.step->bias_correction1, DType::kF32, size),
                 repeated(&exec.step->bias_correction2, DType::kF32, size)};
  args.outputs = {adam};
  kernels::pointwise(exec, args);
  kernels::axpby(exec, {.a = adam, .b = span.master, .y = update, .beta = span.weight_decay});
}

// Computes w -= rate * u.
void Lamb::step_run(size_t shard, const OptimRun& run, const View& compute) {
  Span span = span_of(shard, run);
  span.compute = compute;
  const Exec exec = this->exec(shard);
  const Tensor rate = vector_slice(rates_, number_of(*run.parameter), 1);
  const Tensor adam = temporary(span.m.numel()), update = temporary(span.m.numel());
  for_pieces(span.m.numel(), [&](int64_t begin, int64_t size) {
    const Span piece = piece_of(span, begin, size);
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

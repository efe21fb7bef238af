#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/whole_norms.h"

namespace shale::optim {

// Options of Lamb, with the names in arXiv:1904.00962.
struct LambOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-6f;
  float weight_decay = 0.1f;  // see AdamWOptions::weight_decay
  // Limits of the trust ratio. The paper limits the norm of the weights instead, by its function
  // phi.
  float trust_min = 0;
  float trust_max = 10;
};

// LAMB with bias corrections (arXiv:1904.00962, algorithm 2). Let u be AdamW's update including
// decay. For each parameter, u is scaled by the trust ratio |w| / |u|. As in the paper's code,
// parameters without decay (norms and biases) have ratio 1, so they are updated as by AdamW. A step
// with a non-finite gradient changes nothing.
//
// Norms cover whole parameters. Ranks sum their parts in a way that does not depend on the order
// (WholeNorms), so steps are bitwise equal for every sharding. With sharded parameters, steps are
// collective.
//
// Throws ConfigError for negative or unordered limits of the ratio, for shards that are stepped in
// host memory or during forward, for shards with different peers, and if some parts of a parameter
// are neither on this rank nor at its peers.
class Lamb : public ElementwiseOptimizer {
 public:
  Lamb(std::vector<OptimShard> shards, const LambOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  // A run of a shard, or a part of a run. All vectors have the same length.
  struct Span {
    View master, m, v;
    View compute = {};  // receives the rounded masters; may be undefined
    float weight_decay = 0;
  };
  static Span piece_of(const Span& span, int64_t begin, int64_t size);

  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  Span span_of(size_t shard, const OptimRun& run) const;
  // Number of parameters. Tensor-parallel shards of one parameter (nn::Parameter::peers) count as
  // one. number_of() returns the same number on all ranks that hold parts of the same parameters.
  int64_t count() const { return static_cast<int64_t>(parameters_.size()); }
  int64_t number_of(const Parameter& parameter) const;
  // Updates m and v of a run with its gradient, as AdamW does.
  void add_gradient(const Exec& exec, const View& grad, const Span& span) const;
  // Adds a run to the norms of w and of u, where w are the weights and u = m^ / (sqrt(v^) + eps) +
  // weight_decay * w, with bias-corrected moments m^ and v^.
  void add_norms(const Exec& exec, int64_t number, const Span& span);
  // Computes ratios_ and rates_ from the norms.
  void make_rates(const Exec& exec);
  // Computes u of `span` into `update`, and u without the decay term into `adam`.
  void direction(const Exec& exec, const Span& span, const Tensor& adam,
                 const Tensor& update) const;
  Tensor temporary(int64_t count) const;

  LambOptions options_;
  const ShardPeers* peers_;
  std::vector<const Parameter*> parameters_;
  std::map<std::string, int64_t> numbers_;
  Tensor adapts_, lr_factors_;  // [count] f32 each
  // [count] f32 each. ratios_: ratio of the norms, within its limits. It is 1 if a norm is 0 or the
  // parameter has no decay. rates_: lr * lr_factor * ratio. It is 0 if the gradient is not finite.
  Tensor ratios_, rates_;
  std::optional<WholeNorms> norms_;  // norms of the weights, followed by the norms of u
};

}  // namespace shale::optim

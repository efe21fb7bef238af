#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/whole_norms.h"

namespace shale::optim {

// Names as in the paper of Lamb.
struct LambOptions {
  float beta1 = 0.9f;
  float beta2 = 0.95f;
  float eps = 1e-6f;
  float weight_decay = 0.1f;  // as AdamW's
  // Limits of the trust ratio: phi of the paper, put on the ratio and not on the weights' norm.
  float trust_min = 0;
  float trust_max = 10;
};

// LAMB with bias corrections (arXiv:1904.00962, algorithm 2): AdamW's update with decay, u, of each
// parameter by itself scaled with its trust ratio |w| / |u|. As in the paper's program parameters
// that declare no decay, norms and biases, have a ratio of 1; they are those of AdamW then. A
// gradient that is not finite changes nothing.
//
// Norms are of whole parameters, whose parts ranks add without an order (WholeNorms): steps have
// the same bits however parameters are sharded. Steps are collective where they are.
//
// Throws ConfigError for limits of the ratio that are negative or not in order, for shards that are
// stepped in host memory or while forward goes on, for shards that are cut over different ranks,
// and for a part of a parameter without peers that have the rest.
class Lamb : public ElementwiseOptimizer {
 public:
  Lamb(std::vector<OptimShard> shards, const LambOptions& options);

  bool needs_all_gradients() const override { return true; }
  void begin_step() override;

 private:
  // A run of a shard, or a piece of it. All are vectors of one length.
  struct Span {
    View master, m, v;
    View compute = {};  // receives the rounded master; may be undefined
    float weight_decay = 0;
  };
  static Span piece_of(const Span& span, int64_t begin, int64_t size);

  void set_corrections(StepState& values, int64_t done) const override;
  void step_run(size_t shard, const OptimRun& run, const View& compute) override;
  Span span_of(size_t shard, const OptimRun& run) const;
  // A parameter is known by its number; leaves of one share it (nn::Parameter::leaves). Numbers are
  // the same on all ranks that have parts of the same parameters.
  int64_t count() const { return static_cast<int64_t>(parameters_.size()); }
  int64_t number_of(const Parameter& parameter) const;
  // m and v of a run by its gradient, as AdamW's.
  void add_gradient(const Exec& exec, const View& grad, const Span& span) const;
  // Adds to the norms of the weights and of u = m^ / (sqrt(v^) + eps) + weight_decay * w, of
  // bias-corrected moments.
  void add_norms(const Exec& exec, int64_t number, const Span& span);
  // Sets ratios_ and rates_ from the norms.
  void make_rates(const Exec& exec);
  // u of a piece in `update`; in `adam` that without decay.
  void direction(const Exec& exec, const Span& span, const Tensor& adam,
                 const Tensor& update) const;
  Tensor temporary(int64_t count) const;

  LambOptions options_;
  const ShardPeers* peers_;
  std::vector<const Parameter*> parameters_;
  std::map<std::string, int64_t> numbers_;
  Tensor adapts_, lr_factors_;  // [count] f32
  // [count] f32 each. The ratio of the norms inside its limits, 1 where one of them is 0, or of a
  // parameter that declares no decay; and lr * lr_factor * ratio, 0 for a gradient that is not
  // finite.
  Tensor ratios_, rates_;
  std::optional<WholeNorms> norms_;  // of the weights, and then of u
};

}  // namespace shale::optim

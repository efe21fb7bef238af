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

// A run of a shard, by what LAMB needs of it. All are vectors of one length.
struct LambSpan {
  View master, m, v;
  View compute = {};  // receives the rounded master; may be undefined
  float weight_decay = 0;
};

// What LAMB and 1-bit LAMB do alike. A parameter is known by its number; leaves of one share it
// (nn::Parameter::leaves). Numbers, and what is kept of each, are the same on all ranks that have
// parts of the same parameters.
class LambStep {
 public:
  // Throws ConfigError, naming the optimizer, for shards that are stepped in host memory or while
  // forward goes on, for shards that are cut over different ranks, and for a part of a parameter
  // without peers that have the rest.
  LambStep(const char* name, const std::vector<OptimShard>& shards, const LambOptions& options);

  int64_t count() const { return static_cast<int64_t>(parameters_.size()); }
  const Parameter& parameter(int64_t i) const { return *parameters_[static_cast<size_t>(i)]; }
  int64_t number_of(const Parameter& parameter) const;
  const ShardPeers* peers() const { return peers_; }

  // m and v of a run by its gradient, as AdamW's. Nothing happens to a gradient that is not finite,
  // here and in what follows.
  void add_gradient(const Exec& exec, const View& grad, const View& m, const View& v) const;

  // Norms of the whole parameters: two of each, of `first` and of `second`.
  void begin_norms(const Exec& exec);
  // The weights, and the update u = m^ / (sqrt(v^) + eps) + weight_decay * w, of bias-corrected
  // moments.
  void add_norms(const Exec& exec, int64_t number, const LambSpan& span);
  // The update without decay, and u; for 1-bit LAMB.
  void add_update_norms(const Exec& exec, int64_t number, const LambSpan& span);
  void join_norms(const Exec& exec) { norms_->join(exec); }
  View first_norms() const { return norms_->norms(0, count()); }
  View second_norms() const { return norms_->norms(count(), count()); }

  // [count] f32 each: the ratio of the norms inside its limits, 1 where one of them is 0, or of a
  // parameter that declares no decay; and rates = lr * lr_factor * ratio, 0 for a gradient that is
  // not finite.
  void make_ratios(const Exec& exec, const Tensor& ratios) const;
  void make_rates(const Exec& exec, const View& ratios, const Tensor& rates) const;

  // w -= rate * u, of rates[number].
  void step(const Exec& exec, const Tensor& rates, int64_t number, const LambSpan& span) const;

 private:
  // u of a piece in `update`; the first also without decay in `adam`.
  void direction(const Exec& exec, const LambSpan& span, const Tensor& adam,
                 const Tensor& update) const;
  Tensor temporary(int64_t count) const;
  void add_pieces(const Exec& exec, int64_t number, const LambSpan& span, bool of_weights);

  LambOptions options_;
  const ShardPeers* peers_;
  Context* context_ = nullptr;  // null: there are no shards
  std::vector<const Parameter*> parameters_;
  std::map<std::string, int64_t> numbers_;
  Tensor adapts_, lr_factors_;  // [count] f32
  std::optional<WholeNorms> norms_;
};

// The step's value as one of `count` elements that are all the same.
View repeated(const void* value, DType dtype, int64_t count);
// Whether a gradient was not finite, likewise: what the first byte of non_finite says.
View skips_of(const Exec& exec, int64_t count);

}  // namespace shale::optim

#pragma once

#include <cstdint>
#include <vector>

#include "shale/comm/parallel/context/cut_sequence.h"
#include "shale/comm/parallel/expert/expert_exchange.h"
#include "shale/comm/parallel/tensor/exchange.h"
#include "shale/runtime/nn/distribution.h"

namespace shale::comm {

// Communication of one mesh rank's layers with other mesh ranks. The arguments are exchanges with
// the ranks that share layers, sequences and experts. Each may be null, and must outlive this
// object.
class MeshDistribution : public nn::Distribution {
 public:
  MeshDistribution(Exchange* layers, CutSequence* sequence, ExpertExchange* experts)
      : layers_(layers), sequence_(sequence), experts_(experts) {}

  Tensor across(const Tensor& x, const Tensor& residual, const Body& body) const override;
  int64_t first_of(int64_t count) const override;
  Tensor sum_over_channels(const Tensor& part) const override;
  Tensor embed(int64_t rows, const LookUp& look_up) const override;
  Tensor classifier_loss(const Tensor& x, const Tensor& table, const Tensor& targets, int64_t vocab,
                         const ClassifierLossOptions& options) const override;

  int64_t sample_ranks() const override;
  Tensor own_samples(const Tensor& all) const override;
  Tensor all_samples(const Tensor& own) const override;
  Tensor sum_over_samples(const Tensor& loss) const override;

  bool shares_sequences() const override { return sequence_ != nullptr; }
  Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v,
                   const AttentionOptions& options = {}) const override;
  Tensor packed_attention(const Tensor& qkv, int64_t heads,
                          const AttentionOptions& options = {}) const override;
  Tensor positions(Context& context, int64_t sequences) const override;
  std::vector<DropoutPlace> places_of(const Tensor& x) const override;

  Tensor across_experts(const Tensor& x, const Tensor& residual, const Body& body) const override;
  bool counts_routed() const override;
  int64_t routed_tokens(int64_t here) const override;
  void sum_routed(const Tensor& counts) const override;
  Tensor through_experts(const Tensor& rows, const Tensor& offsets,
                         const Products& products) const override;

 private:
  // Returns the exchanges with the ranks that route other tokens of the same micro-batch. These
  // ranks have other slices of the rows, or other shards of sequences.
  std::vector<Exchange*> routing() const;

  Exchange* const layers_;
  CutSequence* const sequence_;
  ExpertExchange* const experts_;
};

}  // namespace shale::comm

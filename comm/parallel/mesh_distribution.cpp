#include "shale/comm/parallel/mesh_distribution.h"

#include "shale/base/error.h"
#include "shale/comm/parallel/context/cut_attention.h"
#include "shale/comm/parallel/tensor/vocabulary_loss.h"

namespace shale::comm {

Tensor MeshDistribution::across(const Tensor& x, const Tensor& residual, const Body& body) const {
  return layers_ != nullptr ? comm::across(*layers_, x, residual, body) : body(x, residual);
}

int64_t MeshDistribution::first_of(int64_t count) const {
  return layers_ != nullptr ? layers_->rank() * count : 0;
}

Tensor MeshDistribution::sum_over_channels(const Tensor& part) const {
  return layers_ != nullptr ? sum_over_ranks(*layers_, part) : part;
}

Tensor MeshDistribution::embed(int64_t rows, const LookUp& look_up) const {
  if (layers_ == nullptr) return look_up({});
  const int64_t here = rows / layers_->ranks();
  return leave(*layers_, look_up({.first = first_of(here), .whole = rows}));
}

Tensor MeshDistribution::classifier_loss(const Tensor& x, const Tensor& table,
                                         const Tensor& targets, int64_t vocab,
                                         const ClassifierLossOptions& options) const {
  if (layers_ != nullptr && options.softcap != 0) {
    throw ShapeError(cat("loss: softcap is ", options.softcap,
                         ", expected 0, because the embedding table is sharded over ranks"));
  }
  const Tensor loss = layers_ != nullptr
                          ? vocabulary_cross_entropy(*layers_, enter(*layers_, x), table, targets,
                                                     vocab, options.chunk_rows)
                          : linear_cross_entropy(x, table, targets, vocab, options);
  return sequence_ != nullptr ? sequence_->sum(loss) : loss;
}

int64_t MeshDistribution::sample_ranks() const {
  return layers_ != nullptr ? layers_->ranks() : 1;
}

Tensor MeshDistribution::own_samples(const Tensor& all) const {
  return layers_ != nullptr ? comm::own_samples(*layers_, all) : all;
}

Tensor MeshDistribution::all_samples(const Tensor& own) const {
  return layers_ != nullptr ? layers_->gather(own) : own;
}

Tensor MeshDistribution::sum_over_samples(const Tensor& loss) const {
  return layers_ != nullptr ? sum_losses(*layers_, loss) : loss;
}

Tensor MeshDistribution::attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                   const AttentionOptions& options) const {
  return sequence_ != nullptr ? comm::attention(*sequence_, q, k, v, options)
                              : shale::attention(q, k, v, options);
}

Tensor MeshDistribution::packed_attention(const Tensor& qkv, int64_t heads,
                                          const AttentionOptions& options) const {
  return sequence_ != nullptr ? comm::packed_attention(*sequence_, qkv, heads, options)
                              : shale::packed_attention(qkv, heads, options);
}

Tensor MeshDistribution::positions(Context& context, int64_t sequences) const {
  return sequence_ != nullptr ? sequence_->positions(context, sequences) : Tensor();
}

std::vector<DropoutPlace> MeshDistribution::places_of(const Tensor& x) const {
  return comm::places_of(layers_, sequence_, x);
}

Tensor MeshDistribution::across_experts(const Tensor& x, const Tensor& residual,
                                        const Body& body) const {
  return experts_ == nullptr ? across(x, residual, body) : body(x, residual);
}

bool MeshDistribution::counts_routed() const {
  return experts_ != nullptr || layers_ == nullptr || layers_->rank() == 0;
}

std::vector<Exchange*> MeshDistribution::routing() const {
  std::vector<Exchange*> ranks;
  if (experts_ != nullptr && layers_ != nullptr) ranks.push_back(layers_);
  if (sequence_ != nullptr) ranks.push_back(&sequence_->exchange());
  return ranks;
}

int64_t MeshDistribution::routed_tokens(int64_t here) const {
  for (const Exchange* const ranks : routing()) here *= ranks->ranks();
  return here;
}

void MeshDistribution::sum_routed(const Tensor& counts) const {
  for (Exchange* const ranks : routing()) ranks->add_counts(counts);
}

Tensor MeshDistribution::through_experts(const Tensor& rows, const Tensor& offsets,
                                         const Products& products) const {
  if (experts_ == nullptr) return products(rows, offsets);
  const ExpertRows plan = expert_rows(*experts_, offsets, rows.size(0));
  return collect(*experts_, plan, products(dispatch(*experts_, plan, rows), plan.offsets));
}

}  // namespace shale::comm

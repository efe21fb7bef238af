#include "shale/runtime/data/tokens/batches.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"

namespace shale {
namespace {

void check_rank(int64_t rank, int64_t ranks) {
  if (rank < 0 || rank >= ranks) {
    throw InternalError(cat("batches: rank ", rank, ", want [0, ", ranks, ")"));
  }
}

// Row b: the seq_len tokens from `begin`, and the same shifted by one as targets.
void read_row(const TokenStream& tokens, int64_t begin, int64_t b, const TokenBatch& batch) {
  const auto row = static_cast<size_t>(batch.seq_len);
  const size_t at = static_cast<size_t>(b) * row;
  const std::span<int32_t> inputs = batch.inputs.subspan(at, row);
  const std::span<int32_t> targets = batch.targets.subspan(at, row);
  tokens.read(begin, inputs);
  std::copy(inputs.begin() + 1, inputs.end(), targets.begin());
  tokens.read(begin + batch.seq_len, targets.last(1));
}

}  // namespace

TokenBatch::TokenBatch(Batch& batch, int64_t n, int64_t length) : rows(n), seq_len(length) {
  // Both before either is looked at: adding a field moves the others.
  batch.set("inputs", DType::kI32, {rows, seq_len});
  HostTensor& last = batch.set("targets", DType::kI32, {rows, seq_len});
  targets = last.values<int32_t>();
  inputs = batch.set("inputs", DType::kI32, {rows, seq_len}).values<int32_t>();
}

BatchSource train_batches(TrainBatches spec) {
  spec.layout.validate();
  check_rank(spec.rank, spec.layout.ranks);
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    const BatchLayout::Place place = spec.layout.place_of(spec.first_step, i);
    const TokenBatch tokens(batch, spec.layout.micro_batch, spec.sampler.seq_len());
    batch.first_position = spec.layout.first_position(place.step, spec.rank, place.micro);
    batch.count = tokens.rows;
    for (int64_t b = 0; b < tokens.rows; ++b) {
      read_row(*spec.tokens, spec.sampler.window(batch.first_position + b).begin, b, tokens);
    }
    return true;
  };
}

BatchSource eval_batches(EvalBatches spec) {
  check_rank(spec.rank, spec.ranks);
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    if (i >= spec.sampler.rounds(spec.ranks)) return false;
    const EvalSampler::Range range = spec.sampler.range(i, spec.rank, spec.ranks);
    const TokenBatch tokens(batch, spec.sampler.batch(), spec.sampler.seq_len());
    batch.first_position = range.first;
    batch.count = range.count;
    for (int64_t b = 0; b < range.count; ++b) {
      read_row(*spec.tokens, spec.sampler.begin(range.first + b), b, tokens);
    }
    const auto filled = static_cast<size_t>(range.count * tokens.seq_len);
    std::ranges::fill(tokens.inputs.subspan(filled), 0);
    std::ranges::fill(tokens.targets.subspan(filled), kernels::kIgnoreTarget);
    return true;
  };
}

}  // namespace shale

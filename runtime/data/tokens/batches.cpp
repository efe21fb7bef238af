#include "shale/runtime/data/tokens/batches.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"

namespace shale {
namespace {

void check_rank(int64_t rank, int64_t ranks) {
  if (rank < 0 || rank >= ranks) {
    throw InternalError(cat("batches: rank ", rank, ", expected [0, ", ranks, ")"));
  }
}

// Fills an unused row with one document that has no targets.
void fill_unused(const TokenRow& row) {
  std::ranges::fill(row.inputs, 0);
  std::ranges::fill(row.targets, kernels::kIgnoreTarget);
  mark_documents(row, {});
}

}  // namespace

TokenBatch::TokenBatch(Batch& batch, int64_t n, int64_t length, bool with_documents)
    : rows(n), seq_len(length) {
  const Shape shape = {rows, seq_len};
  const auto field = [&](const char* name) {
    return batch.set(name, DType::kI32, shape).values<int32_t>();
  };
  // Adds all fields before it uses one, because adding a field moves the others in memory.
  for (const char* name : {"inputs", "targets"}) field(name);
  if (with_documents) {
    for (const char* name : {"positions", "first_keys"}) field(name);
    positions = field("positions");
    first_keys = field("first_keys");
  }
  inputs = field("inputs");
  targets = field("targets");
}

TokenRow TokenBatch::row(int64_t index) const {
  const auto length = static_cast<size_t>(seq_len), at = static_cast<size_t>(index) * length;
  const auto part = [&](std::span<int32_t> all) {
    return all.empty() ? all : all.subspan(at, length);
  };
  return {part(inputs), part(targets), part(positions), part(first_keys)};
}

BatchSource train_batches(TrainBatches spec) {
  spec.layout.validate();
  check_rank(spec.rank, spec.layout.ranks);
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    const BatchLayout::Place place = spec.layout.place_of(spec.first_step, i);
    const TokenBatch tokens(batch, spec.layout.micro_batch, spec.seq_len, spec.with_documents);
    batch.first_position = spec.layout.first_position(place.step, spec.rank, place.micro);
    batch.count = tokens.rows;
    for (int64_t b = 0; b < tokens.rows; ++b) {
      spec.samples->read(batch.first_position + b, tokens.row(b));
    }
    return true;
  };
}

BatchSource eval_batches(EvalBatches spec) {
  check_rank(spec.rank, spec.ranks);
  return [spec = std::move(spec)](int64_t i, Batch& batch) {
    if (i >= spec.sampler.rounds(spec.ranks)) return false;
    const EvalRounds::Range range = spec.sampler.range(i, spec.rank, spec.ranks);
    const TokenBatch tokens(batch, spec.sampler.batch(), spec.seq_len, spec.with_documents);
    batch.first_position = range.first;
    batch.count = range.count;
    for (int64_t b = 0; b < range.count; ++b) spec.rows->read(range.first + b, tokens.row(b));
    for (int64_t b = range.count; b < tokens.rows; ++b) fill_unused(tokens.row(b));
    return true;
  };
}

}  // namespace shale

#include "shale/models/language/sequence_batches.h"

#include <utility>

#include "shale/kernels/loss.h"

namespace shale::models {
namespace {

void cut_field(const HostTensor& from, const comm::SequenceParts& parts, Batch& own) {
  const int64_t B = from.shape[0], T = from.shape[1], S = parts.chunk_tokens(T);
  const auto tokens = from.values<int32_t>();
  const auto to = own.set(from.name, DType::kI32, {parts.count * B, 2 * S}).values<int32_t>();
  int32_t* next = to.data();
  for (int shard = parts.first; shard < parts.first + parts.count; ++shard) {
    for (int64_t b = 0; b < B; ++b) {
      const auto row = tokens.subspan(static_cast<size_t>(b * T), static_cast<size_t>(T));
      const int32_t padding = from.name == "inputs"    ? 0
                              : from.name == "targets" ? kernels::kIgnoreTarget
                                                       : row.back();
      next = parts.copy_shard(row, shard, padding, next);
    }
  }
}

}  // namespace

void cut_batch(const Batch& whole, const comm::SequenceParts& parts, Batch& own) {
  own.first_position = whole.first_position;
  own.count = whole.count;
  for (const HostTensor& field : whole.fields) cut_field(field, parts, own);
}

BatchSource cut_batches(BatchSource whole, const comm::SequenceParts& parts) {
  return [source = std::move(whole), parts](int64_t index, Batch& batch) {
    Batch all;  // local, because several workers call this function at the same time
    if (!source(index, all)) return false;
    cut_batch(all, parts, batch);
    return true;
  };
}

}  // namespace shale::models

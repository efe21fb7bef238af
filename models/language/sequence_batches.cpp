#include "shale/models/language/sequence_batches.h"

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "shale/kernels/loss.h"

namespace shale::models {
namespace {

void cut_field(const Batch& whole, const nn::SequenceParts& parts, std::string_view name,
               int32_t padding, Batch& own) {
  const HostTensor& from = whole.field(name);
  const int64_t B = from.shape[0], T = from.shape[1], S = parts.chunk_tokens(T);
  const auto tokens = from.values<int32_t>();
  const auto to = own.set(name, DType::kI32, {parts.count * B, 2 * S}).values<int32_t>();
  auto next = to.begin();
  for (int leaf = parts.first; leaf < parts.first + parts.count; ++leaf) {
    for (int64_t b = 0; b < B; ++b) {
      for (const int half : {0, 1}) {
        const int64_t begin = std::min(parts.chunk(leaf, half) * S, T);
        const int64_t count = std::min(begin + S, T) - begin;
        next = std::copy_n(tokens.begin() + b * T + begin, count, next);
        next = std::fill_n(next, S - count, padding);
      }
    }
  }
}

}  // namespace

void cut_batch(const Batch& whole, const nn::SequenceParts& parts, Batch& own) {
  own.first_position = whole.first_position;
  own.count = whole.count;
  cut_field(whole, parts, "inputs", 0, own);
  cut_field(whole, parts, "targets", kernels::kIgnoreTarget, own);
}

BatchSource cut_batches(BatchSource whole, const nn::SequenceParts& parts) {
  return [source = std::move(whole), parts, all = std::make_shared<Batch>()](int64_t index,
                                                                             Batch& batch) {
    if (!source(index, *all)) return false;
    cut_batch(*all, parts, batch);
    return true;
  };
}

}  // namespace shale::models

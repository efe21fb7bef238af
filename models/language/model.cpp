#include "shale/models/language/model.h"

#include <algorithm>

#include "shale/base/error.h"

namespace shale::models {

double LanguageModel::flops_per_token(int64_t seq_len) const {
  const auto count = static_cast<double>(whole_numel(*this));
  return 6 * count + 6 * static_cast<double>(config_.layers) * static_cast<double>(config_.width) *
                         static_cast<double>(seq_len);
}

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets) {
  return run_pieces(pieces(), {}, ids, targets);
}

Tensor LanguageModel::run_pieces(std::span<const nn::Piece> some, const Tensor& x,
                                 const Tensor& ids, const Tensor& targets) {
  const bool begins = !x.defined();
  return run(begins ? ids : x, [&](const Tensor& in) {
    Tensor y = begins ? Tensor() : in;
    for (const nn::Piece& piece : some) {
      y = piece.run(y, piece.feed.empty() ? Tensor() : piece.feed == "inputs" ? ids : targets);
    }
    return y;
  });
}

int64_t LanguageModel::cache_room(const KvCache& cache, int64_t more) const {
  const int64_t context = config_.context;
  const int64_t room = cache.capacity > 0 ? std::min(cache.capacity, context) : context;
  if (cache.length + more > room) {
    throw ShapeError(cat("next_logits: ", cache.length, " tokens are cached and ", more,
                         " follow, there is room for ", room, " of a context of ", context));
  }
  return room;
}

}  // namespace shale::models

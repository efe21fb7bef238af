#include "shale/models/language/model.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/loss.h"
#include "shale/runtime/ops/shape.h"

namespace shale::models {

double LanguageModel::flops_per_token(int64_t seq_len) const {
  const auto count = static_cast<double>(whole_numel(*this));
  return 6 * count + 6 * static_cast<double>(config_.layers) * static_cast<double>(config_.width) *
                         static_cast<double>(seq_len) *
                         config_.pattern.share(seq_len, config_.heads);
}

Tensor LanguageModel::loss(const Tensor& ids, const Tensor& targets, const Documents& documents) {
  return run_pieces(pieces(), {}, ids, targets, documents);
}

Tensor LanguageModel::token_losses(const Tensor& ids, const Tensor& targets,
                                   const Documents& documents) {
  struct Reset {
    bool& of;
    ~Reset() { of = false; }
  };
  const std::vector<nn::Piece> all = pieces();
  if (all.empty()) {
    throw ConfigError(
        "token_losses: LanguageModel::pieces() is empty, expected the pieces (nn/piece.h) of the "
        "model");
  }
  if (distribution().sample_ranks() > 1 || distribution().shares_sequences()) {
    throw ConfigError("token_losses: expected the whole model and whole sequences on each rank");
  }
  by_token_ = true;
  const Reset reset{by_token_};
  return run_pieces(all, {}, ids, targets, documents);
}

Tensor LanguageModel::output_loss(nn::Embedding& head, const Tensor& x,
                                  const Tensor& targets) const {
  if (!by_token_) {
    return head.loss(x, targets, config_.vocab,
                     {.chunk_rows = policy_.loss_chunk_rows, .softcap = config_.logit_softcap});
  }
  return linear_cross_entropy_rows(reshape(x, {-1, config_.width}), head.weight.output_value(),
                                   reshape(targets, {-1}), config_.vocab, config_.logit_softcap);
}

Tensor LanguageModel::run_pieces(std::span<const nn::Piece> some, const Tensor& x,
                                 const Tensor& ids, const Tensor& targets,
                                 const Documents& documents) {
  struct Reset {
    Documents& of;
    ~Reset() { of = {}; }
  };
  documents_ = documents;
  const Reset reset{documents_};
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
    throw ShapeError(cat("next_logits: ", cache.length, " cached and ", more,
                         " new tokens, expected at most ", room, " with a context length of ",
                         context));
  }
  return room;
}

}  // namespace shale::models

#include "shale/bench/support/train_work.h"

#include <utility>

#include "shale/base/rng.h"
#include "shale/models/language/family.h"
#include "shale/runtime/data/tokens/batches.h"

namespace shale::bench {
namespace {

uint32_t word(const PhiloxKey& key, int64_t sample, int64_t element) {
  return philox({uint32_t(element), uint32_t(sample), 0, 0}, key)[0];
}

// Returns a number uniform in [0, bound).
int32_t below(int64_t bound, uint32_t word) {
  return int32_t(uint64_t{word} * uint64_t(bound) >> 32);
}

}  // namespace

TrainWork language_work(std::string name, const models::LanguageModelConfig& sizes,
                        const models::LanguageModelPolicy& policy, int64_t seq_len, uint64_t seed) {
  auto model = models::make_language_model(sizes, policy);
  models::LanguageModel* const of = model.get();
  const PhiloxKey key = rng_key(seed, RngDomain::kTest);
  const auto batch = [vocab = sizes.vocab, seq_len, key](int64_t first, int64_t count) {
    Batch made{.first_position = first, .count = count};
    const TokenBatch tokens(made, count, seq_len);
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t t = 0; t <= seq_len; ++t) {
        const int32_t token = below(vocab, word(key, first + row, t));
        const auto at = size_t(row * seq_len + t);
        if (t < seq_len) tokens.inputs[at] = token;
        if (t > 0) tokens.targets[at - 1] = token;
      }
    }
    return made;
  };
  return {.name = std::move(name),
          .model = std::move(model),
          .units = of->blocks(),
          .loss = [of](const DeviceBatch& b) { return of->loss(b["inputs"], b["targets"]); },
          .batch = batch,
          .item = "token",
          .items = seq_len,
          .item_flops = of->flops_per_token(seq_len),
          .products = of->products()};
}

TrainWork image_work(std::string name, const models::ImageModelConfig& sizes, uint64_t seed) {
  auto model = models::make_image_model(sizes);
  models::ImageModel* const of = model.get();
  const PhiloxKey key = rng_key(seed, RngDomain::kTest);
  const auto batch = [P = sizes.pixels, classes = sizes.classes, key](int64_t first,
                                                                      int64_t count) {
    const int64_t values = P * P * 3;
    Batch made{.first_position = first, .count = count};
    const auto images = made.set("images", DType::kF32, {count, P, P, 3}).values<float>();
    const auto labels = made.set("labels", DType::kI32, {count}).values<int32_t>();
    for (int64_t row = 0; row < count; ++row) {
      labels[size_t(row)] = below(classes, word(key, first + row, values));
      for (int64_t i = 0; i < values; ++i) {
        images[size_t(row * values + i)] = uniform_f32(word(key, first + row, i)) - 0.5f;
      }
    }
    return made;
  };
  return {.name = std::move(name),
          .model = std::move(model),
          .units = of->blocks(),
          .loss = [of](const DeviceBatch& b) { return of->loss(b["images"], b["labels"]); },
          .batch = batch,
          .item_flops = of->flops_per_image()};
}

}  // namespace shale::bench

#include "shale/bench/support/train_work.h"

#include <algorithm>
#include <utility>

#include "shale/base/rng.h"
#include "shale/models/diffusion/batches.h"
#include "shale/models/diffusion/loss.h"
#include "shale/models/language/family.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/nn/lora.h"

namespace shale::bench {
namespace {

uint32_t word(const PhiloxKey& key, int64_t sample, int64_t element) {
  return philox({uint32_t(element), uint32_t(sample), 0, 0}, key)[0];
}

// Returns a number in [0, bound) that is uniform if `word` is.
int32_t below(int64_t bound, uint32_t word) {
  return int32_t(uint64_t{word} * uint64_t(bound) >> 32);
}

// Makes images of noise with labels.
struct NoiseImages {
  int64_t pixels = 0, channels = 0, classes = 0;
  PhiloxKey key;

  Batch operator()(int64_t first, int64_t count) const {
    const int64_t values = pixels * pixels * channels;
    Batch made{.first_position = first, .count = count};
    const auto images =
        made.set("images", DType::kF32, {count, pixels, pixels, channels}).values<float>();
    const auto labels = made.set("labels", DType::kI32, {count}).values<int32_t>();
    for (int64_t row = 0; row < count; ++row) {
      labels[size_t(row)] = below(classes, word(key, first + row, values));
      for (int64_t i = 0; i < values; ++i) {
        images[size_t(row * values + i)] = uniform_f32(word(key, first + row, i)) - 0.5f;
      }
    }
    return made;
  }
};

}  // namespace

std::vector<int32_t> random_tokens(int64_t vocab, int64_t count, uint64_t seed, int64_t sample) {
  const PhiloxKey key = rng_key(seed, RngDomain::kTest);
  std::vector<int32_t> tokens;
  for (int64_t t = 0; t < count; ++t) tokens.push_back(below(vocab, word(key, sample, t)));
  return tokens;
}

TrainWork language_work(std::string name, const models::LanguageModelConfig& sizes,
                        const models::LanguageModelPolicy& policy, int64_t seq_len, uint64_t seed,
                        int64_t lora_rank) {
  auto model = models::make_language_model(sizes, policy);
  if (lora_rank > 0) {
    const nn::LoraOptions lora{.rank = lora_rank, .alpha = 2 * double(lora_rank)};
    nn::add_adapters(*model, lora, {nn::kAllLinear});
  }
  models::LanguageModel* const of = model.get();
  const auto batch = [vocab = sizes.vocab, seq_len, seed](int64_t first, int64_t count) {
    Batch made{.first_position = first, .count = count};
    const TokenBatch tokens(made, count, seq_len);
    for (int64_t row = 0; row < count; ++row) {
      const std::vector<int32_t> text = random_tokens(vocab, seq_len + 1, seed, first + row);
      std::copy(text.begin(), text.end() - 1, tokens.inputs.begin() + row * seq_len);
      std::copy(text.begin() + 1, text.end(), tokens.targets.begin() + row * seq_len);
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
  return {.name = std::move(name),
          .model = std::move(model),
          .units = of->blocks(),
          .loss = [of](const DeviceBatch& b) { return of->loss(b["images"], b["labels"]); },
          .batch = NoiseImages{.pixels = sizes.pixels,
                               .channels = 3,
                               .classes = sizes.classes,
                               .key = rng_key(seed, RngDomain::kTest)},
          .item_flops = of->flops_per_image()};
}

TrainWork dit_work(std::string name, const models::DitConfig& sizes, uint64_t seed) {
  auto model = std::make_unique<models::Dit>(sizes);
  models::Dit* const of = model.get();
  const NoiseImages images{.pixels = sizes.pixels,
                           .channels = sizes.channels,
                           .classes = sizes.classes,
                           .key = rng_key(seed, RngDomain::kTest)};
  const auto batch = [images, no_class = sizes.no_class(), seed](int64_t first, int64_t count) {
    const BatchSource noisy = models::diffusion_batches({.images =
                                                             [&](int64_t, Batch& to) {
                                                               to = images(first, count);
                                                               return true;
                                                             },
                                                         .no_class = no_class,
                                                         .seed = seed});
    Batch made;
    noisy(0, made);
    return made;
  };
  return {.name = std::move(name),
          .model = std::move(model),
          .units = of->blocks(),
          .loss =
              [of](const DeviceBatch& b) {
                return models::diffusion_loss(*of, models::DiffusionKind::kFlow, b);
              },
          .batch = batch,
          .item_flops = of->flops_per_image()};
}

}  // namespace shale::bench

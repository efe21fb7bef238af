#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "shale/models/dit/dit.h"
#include "shale/models/image/model.h"
#include "shale/models/language/model.h"
#include "shale/models/training/micro_batches.h"

namespace shale::bench {

// A training task: a model without memory, its loss, and batches. A sample depends only on its
// position, so batches are equal for all numbers of ranks and training methods.
struct TrainWork {
  std::string name;
  std::unique_ptr<Module> model;
  std::vector<Module*> units;  // units for data parallelism
  models::MicroBatches::Loss loss;
  std::function<Batch(int64_t first, int64_t count)> batch;
  const char* item = "image";  // what the loss counts: images or tokens
  int64_t items = 1;           // items per sample
  double item_flops = 0;       // FLOP of forward and backward per item
  std::vector<models::NamedProduct> products = {};
};

// Makes a task on sequences of random tokens. lora_rank: rank of the LoRA adapters, which alone are
// trained; 0: the whole model is trained.
TrainWork language_work(std::string name, const models::LanguageModelConfig& sizes,
                        const models::LanguageModelPolicy& policy, int64_t seq_len, uint64_t seed,
                        int64_t lora_rank = 0);
// Returns random tokens, the same for the same seed and sample.
std::vector<int32_t> random_tokens(int64_t vocab, int64_t count, uint64_t seed, int64_t sample);

// Makes a task on images of noise, uniform in [-0.5, 0.5], with random labels.
TrainWork image_work(std::string name, const models::ImageModelConfig& sizes, uint64_t seed);

// Makes a task of rectified flow on images of noise with the model's channels.
TrainWork dit_work(std::string name, const models::DitConfig& sizes, uint64_t seed);

}  // namespace shale::bench

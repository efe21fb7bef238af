#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/models/language/family.h"
#include "shale/models/training/step.h"

namespace shale::test {

models::StepModel step_model(models::LanguageModel& model);
models::MakeOptimizer make_adamw();

// Makes `rows` sequences from a stream of rows * (length + 1) tokens: a row's targets are its
// inputs shifted by one token.
Batch token_batch(const std::vector<int32_t>& stream, int64_t rows, int64_t length);

// A short run of a model on one rank, with one micro-batch per step.
struct ShortRun {
  models::LanguageModelConfig model;
  float dropout = 0;
  ContextOptions context = {};
  DType compute = DType::kF32;
  float lr = 1e-2f;
  int64_t steps = 1;
  // Returns the batch of a step; all batches have the same size.
  std::function<Batch(int64_t step)> batch = {};
};

struct ShortRunResult {
  std::vector<float> losses;      // mean loss over tokens of each step
  std::vector<float> parameters;  // all parameters after the last step
};

ShortRunResult train(const ShortRun& run);

}  // namespace shale::test

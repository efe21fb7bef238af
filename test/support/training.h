#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "shale/models/language/family.h"
#include "shale/models/training/step.h"

namespace shale::test {

models::StepModel step_model(models::LanguageModel& model);
models::MakeOptimizer make_adamw();

// `rows` sequences out of a stream of rows * (length + 1) tokens: a row's targets are its inputs
// one token later.
Batch token_batch(const std::vector<int32_t>& stream, int64_t rows, int64_t length);

// A short run of a model on one rank, a micro-batch to a step.
struct ShortRun {
  models::LanguageModelConfig model;
  float dropout = 0;
  ContextOptions context = {};
  DType compute = DType::kF32;
  float lr = 1e-2f;
  int64_t steps = 1;
  std::function<Batch(int64_t step)> batch = {};  // of equal sizes
};

struct ShortRunResult {
  std::vector<float> losses;      // of each step, a mean over tokens
  std::vector<float> parameters;  // all, after the last step
};

ShortRunResult train(const ShortRun& run);

}  // namespace shale::test

#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/models/language/family.h"
#include "shale/models/training/step.h"
#include "shale/runtime/data/batch.h"
#include "shale/test/support/json.h"

namespace shale::test {

// A folder test/fixtures/llama/<name>. It has a model that transformers wrote, and results that
// torch computed for it in f64. test/fixtures/make_llama.py made the folders and explains every
// key.
struct LlamaFixture {
  explicit LlamaFixture(const std::string& name);

  // Returns columns [first, last) of a batch of token ids.
  std::vector<int32_t> columns(const Json& ids, int64_t first, int64_t last) const;
  // Returns the batch of a step in expected["train"].
  Batch train_batch(size_t step) const;
  Batch train_row(size_t step, int64_t row) const;  // returns one sequence of the batch of a step
  // Returns the allowed deviation from the f64 result: 8 times the deviation of torch's f32, but at
  // least 1e-6. A correct f32 implementation deviates about as much as torch's f32, in another
  // direction; sums in another order may deviate a few times as much.
  //
  // In bf16, both implementations round the tensors that they store. 4 times torch's deviation is
  // allowed, but at least one rounding, 2^-9.
  double allowed(const char* key, DType dtype = DType::kF32) const;
  // Includes the softcaps, which config.json cannot contain.
  models::LanguageModelConfig config() const;
  models::LanguageModelPolicy policy() const;

  std::string folder;
  std::unique_ptr<models::StoredModel> stored;
  Json expected;
  int64_t rows = 0, length = 0;
};

// Records what each step of a run reports.
struct StepOutcomes : models::StepObserver {
  void done(const models::StepOutcome& outcome) override {
    losses.push_back(outcome.losses.front());
    norms.push_back(outcome.state.grad_norm);
  }
  std::vector<double> losses, norms;
};

// Returns the optimizer of expected["train"].
models::MakeOptimizer adamw_of(const LlamaFixture& fixture);

}  // namespace shale::test

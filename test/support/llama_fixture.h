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

// A folder test/fixtures/llama/<name>: a model that transformers wrote, and what torch made of it
// in f64. test/fixtures/make_llama.py, which makes them, explains every key.
struct LlamaFixture {
  explicit LlamaFixture(const std::string& name);

  // Columns [first, last) of a batch.
  std::vector<int32_t> columns(const Json& ids, int64_t first, int64_t last) const;
  // The batch of a step of expected["train"].
  Batch train_batch(size_t step) const;
  Batch train_row(size_t step, int64_t row) const;  // one sequence of it
  // A second correct f32 implementation strays from the f64 truth about as far as torch's, in
  // another direction; sums in another order may stray a few times as far. What is asserted is 8
  // times torch's deviation, and never less than 1e-6.
  //
  // In bf16, where both round what they store, 4 times torch's deviation, and never less than 2^-9,
  // one rounding.
  double allowed(const char* key, DType dtype = DType::kF32) const;
  models::LanguageModelConfig config() const;  // with the caps, for which files have no place
  models::LanguageModelPolicy policy() const;

  std::string folder;
  std::unique_ptr<models::StoredModel> stored;
  Json expected;
  int64_t rows = 0, length = 0;
};

// What each step of a run reports.
struct StepOutcomes : models::StepObserver {
  void done(const models::StepOutcome& outcome) override {
    losses.push_back(outcome.losses.front());
    norms.push_back(outcome.state.grad_norm);
  }
  std::vector<double> losses, norms;
};

// The optimizer of expected["train"].
models::MakeOptimizer adamw_of(const LlamaFixture& fixture);

}  // namespace shale::test

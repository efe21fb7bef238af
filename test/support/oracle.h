#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shale/models/training/step.h"
#include "shale/test/support/json.h"

namespace shale::test {

// What another library computed in f64 of a model of images, from a fixture
// test/fixtures/images/NAME.json.
struct Oracle {
  explicit Oracle(const std::string& name);

  // A second correct f32 implementation strays from the f64 truth about as far as torch's, in
  // another direction; sums in another order may stray a few times as far. What is asserted is 8
  // times torch's deviation, and never less than 1e-6.
  double allowed(const char* key) const;

  Json data;
  int64_t images = 0;  // of the batch
  uint32_t seed = 0;
};

// Checks a tensor by the norm and the product with the stream of its name that data[key][name] has.
void check_summary(const Oracle& oracle, const char* key, const std::string& name,
                   const Tensor& tensor);

// Checks the losses of as many steps of SGD as data["train"] has, all on one batch.
void check_steps(const Oracle& oracle, Module& model, const std::vector<Module*>& units,
                 const models::MicroBatches::Loss& loss, double momentum,
                 const std::function<void(const Parameter&, const View& to)>& fill,
                 const Batch& batch);

}  // namespace shale::test

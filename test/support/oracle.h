#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "shale/models/training/step.h"
#include "shale/test/support/json.h"

namespace shale::test {

// Results of an image model that another library computed in f64, from the fixture
// test/fixtures/images/NAME.json.
struct Oracle {
  explicit Oracle(const std::string& name);

  // Returns the allowed deviation from the f64 result: 8 times the deviation of torch's f32, but at
  // least 1e-6. A correct f32 implementation deviates about as much as torch's f32, in another
  // direction; sums in another order may deviate a few times as much.
  double allowed(const char* key) const;

  Json data;
  int64_t images = 0;  // number of images in the batch
  uint32_t seed = 0;
};

// Checks a tensor's norm, and its dot product with the random stream of its name. The expected
// numbers are in data[key][name].
void check_summary(const Oracle& oracle, const char* key, const std::string& name,
                   const Tensor& tensor);

// Checks the losses of SGD steps on one batch; data["train"] has the expected losses.
void check_steps(const Oracle& oracle, Module& model, const std::vector<Module*>& units,
                 const models::MicroBatches::Loss& loss, double momentum,
                 const std::function<void(const Parameter&, const View& to)>& fill,
                 const Batch& batch);

}  // namespace shale::test

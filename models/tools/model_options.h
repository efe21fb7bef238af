#pragma once

#include <memory>
#include <string>

#include "shale/base/config.h"
#include "shale/comm/world.h"
#include "shale/models/language/text_model.h"
#include "shale/models/training/run_config.h"

namespace shale::models {

// Device on which a tool runs a model.
struct DeviceOptions {
  std::string device = "auto";
  Precision dtype = Precision::kAuto;
  int threads = 0;  // CPU threads; 0: the CPUs of the node divided by its ranks
};
void describe(ConfigSpec& spec, DeviceOptions& options);  // declares the flags
std::shared_ptr<Context> make_context(const DeviceOptions& options, comm::World& world);

// Model that a tool uses, and the device on which it runs.
struct ModelOptions : DeviceOptions {
  std::string path;       // Hugging Face folder, checkpoint or run
  // Tokenizer file; empty: the model's own, or bytes for a vocabulary of 256.
  std::string tokenizer;
};

// Declares the flags of `options`, and the path of the model as a positional argument.
void describe(ConfigSpec& spec, ModelOptions& options);

// Loads the whole model on each rank. Throws UnavailableError for a missing device, and as
// load_text_model(). Collective.
TextModel load(const ModelOptions& options, comm::World& world);

}  // namespace shale::models

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/comm/world.h"
#include "shale/models/language/model.h"
#include "shale/models/training/run_config.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/runtime/tensor/context.h"

namespace shale::models {

// Model that a tool uses, and the device on which it runs.
struct ModelOptions {
  std::string path;       // Hugging Face folder, checkpoint or run
  std::string tokenizer;  // tokenizer file; empty: the model's own, or bytes for 256 tokens
  std::string device = "auto";
  Precision dtype = Precision::kAuto;
  int threads = 0;  // CPU threads; 0: the rank's share of the node's CPUs
};

// Declares the flags of `options`, and the path of the model as a positional argument.
void describe(ConfigSpec& spec, ModelOptions& options);

struct LoadedModel {
  std::string description;  // "llama, 134515008 parameters, on cpu in fp32"
  std::shared_ptr<const StoredTokenizer> tokenizer;
  std::vector<int64_t> ends;  // tokens that end a text; the model's files may list several
  std::unique_ptr<Context> context;
  std::unique_ptr<LanguageModel> model;  // must be destroyed before the context
};

// Loads the whole model on each rank. Throws UnavailableError for a missing device, ConfigError for
// a model without a tokenizer, and as open_model(). Collective.
LoadedModel load(const ModelOptions& options, comm::World& world);

}  // namespace shale::models

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

// Which model a tool runs, and where.
struct ModelOptions {
  std::string path;       // a Hugging Face folder, a checkpoint or a run
  std::string tokenizer;  // a file; empty: the model's, of 256 tokens: bytes
  std::string device = "auto";
  Precision dtype = Precision::kAuto;
  int threads = 0;  // 0: the rank's share of the node
};

// Declares the flags, the model as an argument without one.
void describe(ConfigSpec& spec, ModelOptions& options);

struct LoadedModel {
  std::string description;  // "llama, 134515008 parameters, on cpu in fp32"
  std::shared_ptr<const StoredTokenizer> tokenizer;
  std::vector<int64_t> ends;  // tokens that end a text: the model's files may name several
  std::unique_ptr<Context> context;
  std::unique_ptr<LanguageModel> model;  // goes before the context
};

// Loads the whole of it on each rank. Throws UnavailableError for a device that is not there,
// ConfigError for a model without a tokenizer, and as open_model(). Collective.
LoadedModel load(const ModelOptions& options, comm::World& world);

}  // namespace shale::models

#pragma once

#include <string>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/models/gpt2/hf.h"
#include "shale/models/language_model.h"

namespace shale::models {

// A trained GPT-2 as Hugging Face tools store it: config.json and safetensors files.
class HfFolder {
 public:
  // Throws MissingInputError or DataError that names file and tensor, what was expected and found.
  explicit HfFolder(const std::string& folder);

  // Takes over sizes and settings; dropout stays as it is, because it belongs to the training run.
  void apply_to(LanguageModelConfig& config) const;
  // Sets all parameters of a model of that configuration. Collective.
  void load_into(comm::DataParallel& parallel) const;

 private:
  HfGpt2Config config_;
  Gpt2Weights weights_;
};

// What config.json says of a model of that configuration.
HfGpt2Config to_hf(const LanguageModelConfig& config);

// Writes the model's f32 values to `folder`, where transformers reads them; above the limit of the
// options in several files. Holds one parameter at a time in host memory. Every rank calls it, the
// one with is_main writes. Throws DiskError with path and reason.
void export_hf_folder(const std::string& folder, const LanguageModel& model,
                      comm::DataParallel& parallel, bool is_main,
                      const Gpt2ExportOptions& options = {});

}  // namespace shale::models

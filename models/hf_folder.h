#pragma once

#include <memory>
#include <string>

#include "comm/data_parallel.h"
#include "models/language_model.h"


namespace shale::models {

// A GPT-2 model as Hugging Face tools store it: config.json and safetensors files.
class HfFolder {
 public:
  // Throws MissingInputError, DataError that names file, tensor, what was expected and found.
  explicit HfFolder(const std::string& folder);
  ~HfFolder();

  // Takes over the sizes and settings of the stored model.
  void apply_to(LanguageModelConfig& config) const;
  // Fills `to`, f32 and of the parameter's shape, rows that only pad the vocabulary with zeros.
  void read(const std::string& parameter_name, const View& to) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes the model's f32 values to `folder`. Every rank calls it, the one with is_main writes.
// Throws DiskError with path and reason.
void export_hf_folder(const std::string& folder, const LanguageModel& model,
                      comm::DataParallel& parallel, bool is_main);

}  // namespace shale::models

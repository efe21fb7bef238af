#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/models/language/model.h"
#include "shale/models/weights/hf_weights.h"
#include "shale/runtime/io/stored_tensors.h"

namespace shale::models {

// A Llama 3 in a file of another trainer that stores the model's sizes with its weights:
// model_*.bin of llm.c, https://github.com/karpathy/llm.c/blob/master/train_llama3.py.
struct LlamaFile {
  LanguageModelConfig config;
  std::vector<HfTensor> tensors;  // rows of queries and keys are in Meta's order
  StoredTensors files;
};

// Opens a Llama 3 of llm.c. Returns nullopt for any other file. Throws DataError if it is
// malformed. The header rounds real numbers to integers. So this computes the feed-forward width
// from the file's size, and takes 1e-5 as epsilon of the norms, as in every Llama 3.
std::optional<LlamaFile> open_llama_file(const std::string& path);

}  // namespace shale::models

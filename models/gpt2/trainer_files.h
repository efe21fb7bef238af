#pragma once

#include <optional>
#include <string>
#include <vector>

#include "shale/models/gpt2/hf.h"
#include "shale/runtime/io/stored_tensors.h"

namespace shale {

// GPT-2 in the files of other trainers, which store the model's sizes with its weights.
//
// nanoGPT's ckpt.pt: torch.save of {"model": tensors, "model_args": sizes, ...}. Its models have
// GELU with erf. A model without biases gets biases of zero, which are then trained.
//
// llm.c's model_*.bin, version 3 (F32) or 5 (BF16),
// https://github.com/karpathy/llm.c/blob/master/train_gpt2.cu: 256 integers of 32 bits, then the
// tensors, each with all layers. GELU is the tanh form.
struct Gpt2File {
  HfGpt2Config config;
  std::vector<Gpt2Tensor> tensors;  // linear weights are stored as [out, in]
  StoredTensors files;
};

// Opens a file of nanoGPT or llm.c. Returns nullopt for any other file. Throws DataError if it is
// malformed.
std::optional<Gpt2File> open_gpt2_file(const std::string& path);

// Detects by the shape of the first linear weight whether the files store [in, out], as Hugging
// Face does, or [out, in], as torch.nn.Linear does, and sets `tensors` accordingly.
void find_orientation(const StoredTensors& files, std::vector<Gpt2Tensor>& tensors);

}  // namespace shale

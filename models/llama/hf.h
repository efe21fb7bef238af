#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/models/language/model.h"
#include "shale/models/weights/hf_weights.h"

namespace shale::models {

// Llama and its relatives (variant.h) as Hugging Face folders hold them: config.json and
// safetensors.

// Reads <folder>/config.json. Throws MissingInputError if it does not exist; DataError, naming the
// key, if a key is missing, has the wrong type, or asks for a variant that Shale does not have.
// What may be missing has the value that transformers gives it.
LanguageModelConfig load_llama_config(const std::string& folder);
// The same of the file's text; `source` is what messages call it.
LanguageModelConfig parse_llama_config(std::string_view text, const std::string& source);

// The text of a config.json that transformers 4.43 and later read; `dtype` is that of the weights.
// It names no tokens that begin and end texts, since those are the tokenizer's. What transformers
// do not take: YaRN before 4.57, which looked elsewhere for the context of the first training;
// llama3 and YaRN in OLMo2 before 5; a llama of a width that is no multiple of its heads.
std::string llama_config_json(const LanguageModelConfig& config, DType dtype);

// All parameters, in the order of the model, under Hugging Face's names without "model.":
//   embed_tokens.weight [vocab, C]         norm.weight [C]
//   lm_head.weight [vocab, C]              unless it is the embedding's
//   layers.{i}.input_layernorm.weight [C]  not with norms after the branches
//   layers.{i}.self_attn.q_proj.weight [H D, C]         .bias [H D], as all biases if there are any
//   layers.{i}.self_attn.{k,v}_proj.weight [K D, C]     .bias [K D]
//   layers.{i}.self_attn.o_proj.weight [C, H D]         .bias [C]
//   layers.{i}.self_attn.q_norm.weight [D] or [H D]     k_norm.weight [D] or [K D]
//   layers.{i}.post_attention_layernorm.weight [C]
//   layers.{i}.mlp.{gate,up}_proj.weight [I, C]         .bias [I]
//   layers.{i}.mlp.down_proj.weight [C, I]              .bias [C]
//   layers.{i}.post_feedforward_layernorm.weight [C]    with norms after the branches
// In place of mlp, mixtures of E experts have, in files with a tensor for each expert e:
//   layers.{i}.mlp.gate.weight [E, C]                   the router's
//   layers.{i}.mlp.experts.{gate,up}_proj [E, I, C]     files: mlp.experts.{e}.gate_proj.weight,
//   layers.{i}.mlp.experts.down_proj [E, C, I]          Mixtral's block_sparse_moe.experts.{e}.w1
// with H heads of size D, K of keys and values, width C and I inside the feed-forward block. Query
// and key rows of a head are in the order of RopeOptions::interleaved = false.
std::vector<HfTensor> llama_tensors(const LanguageModelConfig& config);

// The prefix "model.", the embedding, and the buffers that files may hold besides.
HfLayout llama_layout();

}  // namespace shale::models

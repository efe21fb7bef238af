#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "shale/base/dtype.h"
#include "shale/models/language/model.h"
#include "shale/models/weights/hf_weights.h"

namespace shale::models {

// Llama and its relatives (variant.h) in Hugging Face folders: config.json and safetensors.

// Reads <folder>/config.json. Throws MissingInputError if it does not exist; DataError, naming the
// key, if a key is missing, has the wrong type, or requests an unsupported variant. Optional keys
// have the defaults of transformers.
LanguageModelConfig load_llama_config(const std::string& folder);
// Parses the text of a config.json; `source` names it in messages.
LanguageModelConfig parse_llama_config(std::string_view text, const std::string& source);

// Returns the text of a config.json for transformers 4.43 and later. dtype: dtype of the weights.
// It names no begin and end tokens; those are in the tokenizer's files. Older transformers cannot
// read some models: YaRN before 4.57, which read the original context from another key, and llama3
// scaling and YaRN in OLMo2 before 5. No version can read a llama whose width is not a multiple of
// its heads.
std::string llama_config_json(const LanguageModelConfig& config, DType dtype);

// Returns all parameters, in the order of the model, under Hugging Face's names without "model.":
//   embed_tokens.weight [vocab, C]         norm.weight [C]
//   lm_head.weight [vocab, C]              unless tied to the embedding
//   layers.{i}.input_layernorm.weight [C]  not with norms after the branches
//   layers.{i}.self_attn.q_proj.weight [H D, C]         .bias [H D]; biases are optional
//   layers.{i}.self_attn.{k,v}_proj.weight [K D, C]     .bias [K D]
//   layers.{i}.self_attn.o_proj.weight [C, H D]         .bias [C]
//   layers.{i}.self_attn.q_norm.weight [D] or [H D]     k_norm.weight [D] or [K D]
//   layers.{i}.post_attention_layernorm.weight [C]
//   layers.{i}.mlp.{gate,up}_proj.weight [I, C]         .bias [I]
//   layers.{i}.mlp.down_proj.weight [C, I]              .bias [C]
//   layers.{i}.post_feedforward_layernorm.weight [C]    with norms after the branches
// MoE models of E experts replace mlp by the following; their files have a tensor per expert e:
//   layers.{i}.mlp.gate.weight [E, C]                   the router's
//   layers.{i}.mlp.experts.{gate,up}_proj [E, I, C]     files: mlp.experts.{e}.gate_proj.weight,
//   layers.{i}.mlp.experts.down_proj [E, C, I]          Mixtral's block_sparse_moe.experts.{e}.w1
// H: heads of size D, K: heads of keys and values, C: width, I: feed-forward width. Query and key
// rows of a head are in the order of RopeOptions::interleaved = false.
std::vector<HfTensor> llama_tensors(const LanguageModelConfig& config);

// Returns the layout of a Llama in Hugging Face files: the name prefix "model.", the embedding, and
// the ignored buffers.
HfLayout llama_layout();

// Declares in `tensors` that files store query and key rows in Meta's order, in which RoPE rotates
// pairs of neighbouring elements of a head.
void pair_heads(std::vector<HfTensor>& tensors, const LanguageModelConfig& config);

// Names in the files of Meta and torchtitan:
//   tok_embeddings.weight   norm.weight   output.weight   layers.{i}.attention_norm.weight
//   layers.{i}.ffn_norm.weight   layers.{i}.attention.{wq,wk,wv,wo}.weight
//   layers.{i}.feed_forward.{w1,w2,w3}.weight, which are gate, down and up
// torchtitan since 2026: lm_head.weight   layers.{i}.attention.qkv_linear.{wq,wk,wv}.weight
struct NamedTensors {
  std::vector<HfTensor> tensors;
  HfLayout layout;
};
// Returns the names of the tensors in `files`, which are Hugging Face's or Meta's. Throws DataError
// if the names are Meta's and the family is not llama.
NamedTensors llama_tensors_in(const StoredTensors& files, const std::string& path,
                              const LanguageModelConfig& config);

}  // namespace shale::models

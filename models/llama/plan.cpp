#include "shale/models/llama/plan.h"

#include "shale/models/llama/variant.h"

namespace shale::models {

comm::TensorPlan llama_tensor_plan(const LanguageModelConfig& config) {
  const LlamaVariant& variant = llama_variant(config.family);
  const comm::TensorPlan::Columns heads{.unit = head_size_of(config)};
  comm::TensorPlan plan;
  plan.vocabulary("embed_tokens");
  if (!config.tied) plan.vocabulary("lm_head");
  if (!variant.norms_after) plan.slices("layers.*.input_layernorm");
  plan.columns("layers.*.self_attn.q_proj", heads)
      .columns("layers.*.self_attn.k_proj", heads)
      .columns("layers.*.self_attn.v_proj", heads)
      .rows("layers.*.self_attn.o_proj");
  if (variant.head_norm == HeadNorm::kPerHead) {
    plan.slices("layers.*.self_attn.q_norm").slices("layers.*.self_attn.k_norm");
  }
  if (variant.head_norm == HeadNorm::kWholeRow) {
    plan.columns("layers.*.self_attn.q_norm", heads).columns("layers.*.self_attn.k_norm", heads);
  }
  plan.slices("layers.*.post_attention_layernorm");
  if (variant.norms_after) plan.slices("layers.*.post_feedforward_layernorm");
  if (config.experts > 0) return plan.mixture("layers.*.mlp").slices("norm");
  return plan.columns("layers.*.mlp.gate_proj")
      .columns("layers.*.mlp.up_proj")
      .rows("layers.*.mlp.down_proj")
      .slices("norm");
}

}  // namespace shale::models

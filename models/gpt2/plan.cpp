#include "shale/models/gpt2/plan.h"

namespace shale::models {

comm::TensorPlan gpt2_tensor_plan(const LanguageModelConfig& config) {
  return comm::TensorPlan()
      .vocabulary("wte")
      .first("wpe")
      .slices("h.*.ln_1")
      .columns("h.*.attn.c_attn", {.groups = 3, .unit = config.width / config.heads})
      .rows("h.*.attn.c_proj")
      .slices("h.*.ln_2")
      .columns("h.*.mlp.c_fc")
      .rows("h.*.mlp.c_proj")
      .slices("ln_f");
}

}  // namespace shale::models

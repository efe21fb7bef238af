#pragma once

#include <memory>
#include <string>

#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/moe.h"

namespace shale::nn {

// Mixture of experts, each a SwiGLU (runtime/ops/moe.h). gate.weight [E, width] is the router. The
// tensors experts.gate_proj and experts.up_proj [E, hidden, width] and experts.down_proj [E, width,
// hidden] hold all experts. Experts that every token passes through form one wider SwiGLU,
// "shared_experts".
//
// With tensor parallelism each rank has all rows and the whole router, so all ranks choose the same
// experts. Each rank has a part of each expert's hidden channels. With expert parallelism each rank
// has some whole experts, and ranks send rows to the ranks that have their experts. Loads and the
// balance loss count each token once; with context parallelism they count the tokens of the whole
// sequence. An expert's capacity applies to the tokens that are routed together.
class MoE : public Module {
 public:
  struct Config {
    int64_t width = 0, hidden = 0;  // sizes of each expert
    int64_t experts = 0;            // number of experts, E
    int64_t shared_hidden = 0;      // hidden size of all shared experts together; 0: none
    RouterOptions router = {};
    Init init = {};       // initial values of all weights except down_proj
    Init down_init = {};  // initial values of down_proj, which adds to the residual stream
  };
  MoE(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result) and the result: [..., width].
  Tensor forward(const Tensor& x, const Tensor& residual = {});

  int64_t expert_count() const { return experts.gate_proj.whole[0]; }
  // Makes each forward in training add to `loads`, [E + 1] i32: the number of tokens per expert,
  // then the number of dropped choices. Recomputation does not count again. bias: [E] f32,
  // optional, is added to the scores when experts are chosen, but not to their weights. It is saved
  // as the buffer "router_bias". Undefined tensors stop the counting.
  void count_loads(Tensor loads, Tensor bias);

  // Weights of the experts. MoE computes their GEMMs. With expert parallelism they are the weights
  // of this rank's experts only.
  class Experts : public Module {
   public:
    Experts(Module* parent, const Config& config);
    bool runs() const override { return false; }

    Parameter& gate_proj;
    Parameter& up_proj;
    Parameter& down_proj;
  };

  LinearWeights gate;
  Experts experts;
  std::unique_ptr<SwiGlu> shared_experts;  // null: no shared experts

 private:
  // Returns this rank's part of the result for tokens [..., width]. residual: see forward().
  Tensor mix(const Tensor& x, const Tensor& residual);
  // Applies the experts to rows sorted by expert. The rows of expert e begin at routing.offsets[e].
  Tensor through_experts(const Tensor& rows, const Routing& routing);
  CountsOfParts counts_of(const Tensor& x) const;

  RouterOptions router_;
  Tensor loads_;                   // undefined: loads are not counted
  Buffer* router_bias_ = nullptr;  // null: no bias was ever set
};

}  // namespace shale::nn

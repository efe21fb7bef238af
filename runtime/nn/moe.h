#pragma once

#include <memory>
#include <string>

#include "shale/runtime/nn/layers.h"
#include "shale/runtime/ops/moe.h"

namespace shale::nn {

// A mixture of experts, each a SwiGlu (runtime/ops/moe.h): gate.weight [E, width] is the router's,
// experts.gate_proj and experts.up_proj [E, hidden, width], experts.down_proj [E, width, hidden]
// have all experts. Experts that every token goes through are one wider SwiGlu, "shared_experts".
//
// Ranks that share layers have all rows, all of the router, which chooses on every rank alike, and
// hidden channels of every expert; where ranks have different experts, experts are whole, and a
// rank sends them its rows. Loads and the balance loss count a token once, and those of a whole
// sequence where ranks share it; an expert's capacity is of the tokens that are routed at once.
class MoE : public Module {
 public:
  struct Config {
    int64_t width = 0, hidden = 0;  // inside each expert
    int64_t experts = 0;            // E
    int64_t shared_hidden = 0;      // inside the experts that all tokens share, together; 0: none
    RouterOptions router = {};
    Init init = {};       // of all but down_proj
    Init down_init = {};  // of down_proj, which writes to the residual stream
  };
  MoE(Module* parent, std::string name, const Config& config);
  // x, residual (optional, added to the result) and the result: [..., width].
  Tensor forward(const Tensor& x, const Tensor& residual = {});

  int64_t expert_count() const { return experts.gate_proj.whole[0]; }
  // From now on forward in training adds the tokens of each expert, then the choices that were
  // dropped, to `loads`, [E + 1] i32, once for each call, recomputed or not. `bias`, [E] f32,
  // optional, is added to scores for the choice alone, and saved as the buffer "router_bias".
  // Undefined tensors end that.
  void count_loads(Tensor loads, Tensor bias);

  // The experts' weights, whose products MoE makes; those of this rank's experts where ranks have
  // different ones.
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
  std::unique_ptr<SwiGlu> shared_experts;  // null: none

 private:
  // What this rank makes of tokens [..., width]; residual as in forward().
  Tensor mix(const Tensor& x, const Tensor& residual);
  // Rows sorted by expert, those of expert e from routing.offsets[e] on.
  Tensor through_experts(const Tensor& rows, const Routing& routing);
  CountsOfParts counts_of(const Tensor& x) const;

  RouterOptions router_;
  Tensor loads_;                   // undefined: not counted
  Buffer* router_bias_ = nullptr;  // null: there never was one
};

}  // namespace shale::nn

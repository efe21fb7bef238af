#pragma once

#include "shale/kernels/cuda/attention/attention_launch.h"

namespace shale::kernels::SHALE_BACKEND {

// Attention by the warpgroups of Hopper: 16-bit inputs, none of whose sizes is 0, without
// BlockLists, on a device of compute capability 9.0, with heads of 64, 96, 128, 192 or 256.
// Everything else is for the portable kernels.
bool has_attention90(const Exec& exec, const AttentionProblem& p);

// As launch_attention_fwd(). T is bf16 or f16.
template <typename T>
void launch_attention90_fwd(const Exec& exec, const AttentionParams& params);

// As launch_attention_bwd_keys() and launch_attention_bwd_queries().
template <typename T>
void launch_attention90_bwd_keys(const Exec& exec, const AttentionParams& params);
template <typename T>
void launch_attention90_bwd_queries(const Exec& exec, const AttentionParams& params);

}  // namespace shale::kernels::SHALE_BACKEND

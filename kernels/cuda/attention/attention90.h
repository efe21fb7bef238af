#pragma once

#include "shale/kernels/cuda/attention/attention_launch.h"

namespace shale::kernels::SHALE_BACKEND {

// Returns whether Hopper's attention kernels support the problem: 16-bit inputs without empty
// dimensions, no BlockLists, compute capability 9.0, head size 64, 96, 128, 192 or 256. Everything
// else uses the portable kernels.
bool has_attention90(const Exec& exec, const AttentionProblem& p);

// Like launch_attention_fwd(), for Hopper. T is bf16 or f16.
template <typename T>
void launch_attention90_fwd(const Exec& exec, const AttentionParams& params);

// Like launch_attention_bwd_keys() and launch_attention_bwd_queries(), for Hopper.
template <typename T>
void launch_attention90_bwd_keys(const Exec& exec, const AttentionParams& params);
template <typename T>
void launch_attention90_bwd_queries(const Exec& exec, const AttentionParams& params);

}  // namespace shale::kernels::SHALE_BACKEND

#include "shale/kernels/cuda/attention/attention90_bwd_keys.cuh"
#include "shale/kernels/cuda/attention/attention90_bwd_queries.cuh"

namespace shale::kernels::SHALE_BACKEND {

template void launch_attention90_bwd_keys<bf16>(const Exec& exec, const AttentionParams& params);
template void launch_attention90_bwd_queries<bf16>(const Exec& exec, const AttentionParams& params);

}  // namespace shale::kernels::SHALE_BACKEND

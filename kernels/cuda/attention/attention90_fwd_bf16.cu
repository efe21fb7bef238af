#include "shale/kernels/cuda/attention/attention90_fwd.cuh"

namespace shale::kernels::SHALE_BACKEND {

template void launch_attention90_fwd<bf16>(const Exec& exec, const AttentionParams& params);

}  // namespace shale::kernels::SHALE_BACKEND

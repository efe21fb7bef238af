#include "kernels/cuda/sm90/attention90_bwd_keys.h"
#include "kernels/cuda/sm90/attention90_bwd_queries.h"

namespace shale::kernels::SHALE_BACKEND {

template void launch_attention90_bwd_keys<f16>(const Exec& exec, const AttentionParams& params);
template void launch_attention90_bwd_queries<f16>(const Exec& exec, const AttentionParams& params);

}  // namespace shale::kernels::SHALE_BACKEND

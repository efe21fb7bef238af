#pragma once

#include <cstddef>
#include <utility>

#include "shale/base/exec.h"
#include "shale/kernels/simt/cuda/builtins.h"
#include "shale/kernels/simt/cuda/cuda_error.h"

namespace shale::kernels::cuda::simt {

struct LaunchConfig {
  Dim3 grid{};
  Dim3 block{};
  size_t smem_bytes = 0;  // dynamic shared memory
  int cluster = 1;        // blocks per cluster, neighbours along x (cluster.h)
};

__device__ __forceinline__ void await_previous_grid() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

template <typename... Params, typename... Args>
void launch(void (*kernel)(Params...), const LaunchConfig& config, const Exec& exec,
            Args&&... args) {
  cudaLaunchConfig_t launch_config{};
  launch_config.gridDim = dim3(config.grid.x, config.grid.y, config.grid.z);
  launch_config.blockDim = dim3(config.block.x, config.block.y, config.block.z);
  launch_config.dynamicSmemBytes = config.smem_bytes;
  launch_config.stream = static_cast<cudaStream_t>(exec.stream);
  const auto* function = reinterpret_cast<const void*>(kernel);
  cudaLaunchAttribute attributes[2] = {};
  launch_config.attrs = attributes;
  if (exec.dependent_launch) {
    check_dependent_launch(function, exec.device);
    cudaLaunchAttribute& dependent = attributes[launch_config.numAttrs++];
    dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    dependent.val.programmaticStreamSerializationAllowed = 1;
  }
  if (config.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[launch_config.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {static_cast<unsigned>(config.cluster), 1, 1};
  }
  if (asks_for_shared_memory(config.smem_bytes)) {
    allow_shared_memory(function, exec.device, config.smem_bytes);
  }
  check_launch(
      cudaLaunchKernelEx(&launch_config, kernel, static_cast<Params>(std::forward<Args>(args))...),
      function, launch_config);
}

}  // namespace shale::kernels::cuda::simt

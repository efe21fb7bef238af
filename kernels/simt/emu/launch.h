#pragma once

#include <tuple>
#include <utility>

#include "shale/kernels/simt/emu/builtins.h"
#include "shale/kernels/simt/engine/launch.h"

namespace shale::kernels::emu::simt {

struct LaunchConfig {
  Dim3 grid{};
  Dim3 block{};
  size_t smem_bytes = 0;        // dynamic shared memory
  int cluster = 1;              // blocks per cluster, neighbours along x (cluster.h)
  Site site = Site::current();  // place of the launch, for reports
};

inline void await_previous_grid(Site site = Site::current()) {
  emulator::await_previous_grid(site);
}

// A kernel and copies of its arguments: it runs later, when the caller's variables may be gone.
template <typename... Params>
struct KernelCall {
  void (*kernel)(Params...);
  std::tuple<std::remove_cv_t<Params>...> arguments;

  void operator()() const {
    emulator::begin_kernel(this, sizeof(*this));
    std::apply(kernel, arguments);
  }
};

template <typename... Params, typename... Args>
void launch(void (*kernel)(Params...), const LaunchConfig& config, const Exec& exec,
            Args&&... args) {
  emulator::Grid grid = {.blocks = {config.grid.x, config.grid.y, config.grid.z},
                         .threads = {config.block.x, config.block.y, config.block.z},
                         .cluster = config.cluster,
                         .function = reinterpret_cast<const void*>(kernel),
                         .dynamic_bytes = config.smem_bytes,
                         .asked_for_shared = asks_for_shared_memory(config.smem_bytes),
                         .site = config.site};
  grid.body = KernelCall<Params...>{kernel, {static_cast<Params>(std::forward<Args>(args))...}};
  emulator::launch(exec, std::move(grid));
}

}  // namespace shale::kernels::emu::simt

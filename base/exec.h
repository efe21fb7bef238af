#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/base/device.h"

namespace shale {

class ReservedSms;
class Tracer;
namespace kernels {
class CallObserver;
}

// The state of dynamic loss scaling (kernels/loss_scale.h), which only float16 needs.
struct LossScale {
  float value = 1;             // loss scale: backward() starts from this gradient of the loss
  uint32_t good_steps = 0;     // number of steps since the value last changed
  uint32_t tolerance = 1;      // each overflow counts it down; at 0, overflows lower `value`
  uint32_t skipped_steps = 0;  // total number of skipped steps
};

// Values that change from step to step. They are in device memory, and kernels read them there in
// stream order, so that a step never synchronises with the host and can be captured as a graph.
struct StepState {
  // The host writes the fields from here to grad_scale, and uploads them in one copy.
  uint64_t seed = 0;
  uint64_t step = 0;    // optimizer steps done before this one
  uint64_t sample = 0;  // global index of this micro-batch's first sample in the step
  float lr = 0;         // lr and the corrections are set only in an optimizer's StepState
  float bias_correction1 = 1;  // 1 - beta1^t
  float bias_correction2 = 1;  // 1 - beta2^t
  float grad_scale = 1;        // 1 / tokens of the global batch: backward() starts from it
  // Kernels write loss_scale, which keeps its value from step to step.
  LossScale loss_scale;
  // Kernels write the fields below; the host resets them when a step begins.
  float grad_norm = 0;      // norm of the whole gradient, written by kernels::clip_factor
  float clip_factor = 1;    // factor that optimizers apply to gradients (unscaling included)
  uint32_t non_finite = 0;  // not 0: skip the step. 1: Inf or NaN; 2, 3: kernels/loss_scale.h
};

// Counters in device memory that the blocks of a kernel share, for the kernels of one stream. They
// are 0 between kernels: the last block that counts resets them, so that no launch has to clear
// them. This holds for dependent launches and for CUDA graphs, too.
struct BlockCounters {
  uint32_t next_tile = 0;  // see kernels/cuda/tile_queue.cuh
  // Number of blocks that have written their share of each slab of 64 rows, for tiles that several
  // blocks share (kernels/cuda/gemm/gemm90_shares.cuh).
  static constexpr int kSlabs = 272;
  uint32_t written[kSlabs] = {};
};

// Scratch memory of a stream. It is valid until the next reserve() on the same stream.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual void* reserve(size_t bytes) = 0;  // 64-byte aligned; throws OutOfMemoryError
};

// Execution environment that a kernel gets besides its arguments.
struct Exec {
  Device device;
  void* stream = nullptr;             // a cudaStream_t or an emulator queue; null on the CPU
  Workspace* workspace = nullptr;     // scratch memory; the runtime always sets it
  StepState* step = nullptr;          // in device memory; null in calls that do not need it
  BlockCounters* counters = nullptr;  // in device memory; null: kernels are a little slower
  int threads = 1;                    // CPU threads
  bool deterministic = false;         // selects the variant without atomics
  // f32 GEMMs round their operands to tf32: 10 bits of mantissa, to nearest, ties away from zero.
  // Needs tensor cores of compute capability 8.0 or later; the CPU does the same, slowly.
  bool tf32 = false;
  // Maximum number of blocks of a persistent kernel, whose blocks process one tile after the other.
  // 0: the number of the GPU's multiprocessors. Results do not depend on it.
  int persistent_blocks = 0;
  // Multiprocessors reserved for collectives, which persistent kernels leave free; null: none.
  // Results do not depend on it.
  const ReservedSms* held = nullptr;
  // The blocks of a kernel start while the kernel before it in the stream still runs, and wait for
  // its end (programmatic dependent launch). Requires a device whose kernels are compiled for
  // compute capability 9.0 or later; a launch elsewhere is an error.
  bool dependent_launch = false;
  Tracer* tracer = nullptr;                   // receives kernel times; may be null
  kernels::CallObserver* observer = nullptr;  // called around each kernel call; may be null
};

}  // namespace shale

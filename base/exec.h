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
  uint32_t tolerance = 1;      // overflows until `value` is lowered; each overflow counts down
  uint32_t skipped_steps = 0;  // total number of skipped steps
};

// Values that change from step to step. They are in device memory, where kernels read them in
// stream order. A step therefore never synchronises with the host, and can be captured as a graph.
struct StepState {
  // The host writes the fields from seed to grad_scale, and uploads them in one copy.
  uint64_t seed = 0;
  uint64_t step = 0;    // optimizer steps done before this one
  uint64_t sample = 0;  // global index of this micro-batch's first sample in the step
  float lr = 0;         // learning rate; like the corrections, set only in an optimizer's StepState
  float bias_correction1 = 1;  // 1 - beta1^t
  float bias_correction2 = 1;  // 1 - beta2^t
  float grad_scale = 1;  // 1 / tokens of the global batch: backward() starts with this gradient
  // Kernels write loss_scale, which keeps its value from step to step.
  LossScale loss_scale;
  // Kernels write the fields from grad_norm on; the host resets them when a step begins.
  float grad_norm = 0;      // norm of the whole gradient, written by kernels::clip_factor
  float clip_factor = 1;    // factor that optimizers apply to gradients, with 1 / loss scale
  uint32_t non_finite = 0;  // not 0: skip the step. 1: Inf or NaN; 2, 3: kernels/loss_scale.h
};

// Counters in device memory for the kernels of one stream. The blocks of a kernel share them. They
// are 0 between kernels: the last block that counts resets them, so that no launch has to clear
// them. This also holds for dependent launches and for CUDA graphs.
struct BlockCounters {
  uint32_t next_tile = 0;  // see kernels/cuda/tile_queue.cuh
  // For tiles that several blocks share (kernels/cuda/gemm/gemm90_shares.cuh): number of blocks
  // that have written their part of each slab of 64 rows.
  static constexpr int kSlabs = 272;
  uint32_t written[kSlabs] = {};
};

// Scratch memory of a stream. It is valid until the next reserve() on the same stream.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual void* reserve(size_t bytes) = 0;  // 64-byte aligned; throws OutOfMemoryError
};

// What a kernel gets besides its arguments.
struct Exec {
  Device device;
  void* stream = nullptr;             // a cudaStream_t or an emulator queue; null on the CPU
  Workspace* workspace = nullptr;     // scratch memory; the runtime always sets it
  StepState* step = nullptr;  // step's state in device memory; null in calls that do not need it
  BlockCounters* counters = nullptr;  // counters in device memory; null: kernels are a bit slower
  int threads = 1;                    // CPU threads
  bool deterministic = false;         // selects the variant without atomics
  // f32 GEMMs round their operands to tf32: 10 bits of mantissa, to nearest, ties away from zero.
  // Needs tensor cores of compute capability 8.0 or later; the CPU does the same, slowly.
  bool tf32 = false;
  // Maximum number of blocks of a persistent kernel, whose blocks process one tile after another.
  // 0: the number of the GPU's multiprocessors. Results do not depend on it.
  int persistent_blocks = 0;
  // Multiprocessors that persistent kernels leave free for collectives; null: none. Results do not
  // depend on it.
  const ReservedSms* held = nullptr;
  // Programmatic dependent launch: the blocks of a kernel start while the previous kernel in the
  // stream still runs, and wait for its end. Requires a device whose kernels are compiled for
  // compute capability 9.0 or later; a launch on another device is an error.
  bool dependent_launch = false;
  Tracer* tracer = nullptr;                   // receives kernel times; may be null
  kernels::CallObserver* observer = nullptr;  // called around each kernel call; may be null
};

}  // namespace shale

#pragma once

#include <cstddef>
#include <cstdint>

#include "shale/base/device.h"

namespace shale {

class HeldMultiprocessors;
class Tracer;
namespace kernels {
class CallObserver;
}

// The state of dynamic loss scaling (kernels/loss_scale.h), which only float16 needs.
struct LossScale {
  float value = 1;             // a factor of all gradients: backward() begins with it
  uint32_t good_steps = 0;     // since the value last changed
  uint32_t tolerance = 1;      // overflows to come until the value falls, that one included
  uint32_t skipped_steps = 0;  // in all
};

// Values that change from step to step. They live in device memory; kernels read them from there,
// in stream order, so that a step never synchronises with the host and can be captured as a graph.
struct StepState {
  // Written by the host, and uploaded as one piece.
  uint64_t seed = 0;
  uint64_t step = 0;           // optimizer steps done before this one
  uint64_t sample = 0;         // global index of this micro-batch's first sample in the step
  float lr = 0;                // in an optimizer's values, as the next two; else unused
  float bias_correction1 = 1;  // 1 - beta1^t
  float bias_correction2 = 1;  // 1 - beta2^t
  float grad_scale = 1;        // 1 / tokens of the global batch: backward() begins with it
  // Written by kernels; lasts from step to step.
  LossScale loss_scale;
  // Written by kernels (and once by the host, when a step begins).
  float grad_norm = 0;      // of the whole gradient, written by clip_factor
  float clip_factor = 1;    // what an optimizer multiplies gradients with (unscaling included)
  uint32_t non_finite = 0;  // not 0: a gradient is Inf or NaN (2: see kernels/loss_scale.h)
};

// What the blocks of a kernel count together, in device memory, for the kernels of one stream. 0
// between kernels: who counts last puts it back, so that nobody has to clear it between launches,
// which may be dependent ones or those of a graph.
struct BlockCounters {
  uint32_t next_tile = 0;  // kernels/cuda/tile_queue.cuh
  // Of tiles that several blocks share (kernels/cuda/gemm/gemm90_shares.cuh), for each slab of 64
  // rows: who has written its part.
  static constexpr int kSlabs = 272;
  uint32_t written[kSlabs] = {};
};

// Scratch memory of a stream: valid until the next reserve() on the same stream.
class Workspace {
 public:
  virtual ~Workspace() = default;
  virtual void* reserve(size_t bytes) = 0;  // 64-byte aligned; throws OutOfMemoryError
};

// What a kernel gets besides its arguments.
struct Exec {
  Device device;
  void* stream = nullptr;             // a cudaStream_t, an emulator queue; null on the CPU
  Workspace* workspace = nullptr;     // never null in a call made by the runtime
  StepState* step = nullptr;          // device memory, or null in calls that need none of it
  BlockCounters* counters = nullptr;  // device memory; null: kernels do without, a little slower
  int threads = 1;                    // CPU threads
  bool deterministic = false;         // asks for the variant without atomics
  // Matrix products of f32 round their operands to tf32: 10 bits of mantissa, to nearest, ties away
  // from zero. For tensor cores of compute capability 8.0 and later; the CPU does the same, slowly.
  bool tf32 = false;
  // Most blocks of a kernel whose blocks take one tile after the other; 0: as many as the GPU has
  // multiprocessors. Results do not depend on it.
  int persistent_blocks = 0;
  // What collectives hold of these, which such kernels leave free; null: nothing. Results do not
  // depend on it either.
  const HeldMultiprocessors* held = nullptr;
  // Blocks of a kernel come up while the kernel before it in the stream still runs, and wait for
  // its end (programmatic dependent launch). Only on a device whose kernels are compiled for
  // compute capability 9.0 or later; a launch elsewhere is an error.
  bool dependent_launch = false;
  Tracer* tracer = nullptr;                   // where kernel times go, or null
  kernels::CallObserver* observer = nullptr;  // who stands around kernel calls, or null
};

}  // namespace shale

#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/kernel_recorder.h"
#include "shale/bench/support/product_floor.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/train_loop.h"

namespace shale::bench {

// A row of a step's table: a kernel slot in one phase, or the time that a phase spends outside
// kernels.
struct StepRow {
  std::string phase;
  std::string name;
  double calls = 0;    // calls per step; 0 if not a kernel
  double seconds = 0;  // seconds per step
  double flops = 0;    // FLOP per step; 0: none, or unknown
  double bytes = 0;    // bytes per step; 0: unknown
};

// Returns the rows of one phase over `steps` steps, longest first: the kernels that `tracer` timed,
// and what remains of the phase's `seconds`.
std::vector<StepRow> phase_rows(const std::string& phase, const Tracer& tracer, double seconds,
                                const KernelRecorder& recorder, int64_t steps);
// Returns the rows of `steps` steps recorded by `loop` and `recorder`, longest first. They add up
// to the time of the phases.
std::vector<StepRow> step_rows(const TrainLoop& loop, const KernelRecorder& recorder,
                               int64_t steps);

// Totals of a GEMM or convolution shape in one step. product_totals() returns them, longest first;
// its argument `floor` may be null.
struct ProductRow {
  std::string name;
  double calls = 0;           // calls per step
  double seconds = 0;         // seconds per step
  double vendor_seconds = 0;  // oneDNN's seconds per step; 0: not measured
  double flops = 0;           // FLOP per step
};
std::vector<ProductRow> product_totals(const KernelRecorder& recorder, int64_t steps,
                                       const ProductFloor* floor, int64_t floor_runs);

std::string parts_table(const std::vector<StepRow>& parts, double step_seconds);
std::string product_table(const std::vector<ProductRow>& parts, double step_seconds);
std::string memory_table(const MemoryParts& memory);

Json step_json(const std::vector<StepRow>& parts, double step_seconds);
Json product_json(const std::vector<ProductRow>& parts);
Json memory_json(const MemoryParts& memory);

}  // namespace shale::bench

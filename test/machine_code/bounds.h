#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/test/machine_code/sass.h"

// Performance bounds of a kernel from its machine code, without running it. A bound says how long a
// loop occupies each pipe of an SM. Nothing here was measured.
namespace shale::machine_code {

// A GPU, by the data that its manufacturer publishes.
struct Gpu {
  std::string name;
  double multiprocessors = 0, clock_hz = 0;
  double tensor_fma = 0;  // FMAs of 16-bit operands per SM cycle, dense
  double bytes_per_s = 0;

  double flops() const { return 2 * tensor_fma * multiprocessors * clock_hz; }
  double bytes_per_cycle() const { return bytes_per_s / multiprocessors / clock_hz; }
};
const std::vector<Gpu>& gpus();  // Returns the A100, the H100 and the H200, in this order.

// Work of one warp, per pipe.
struct Work {
  double issued = 0;        // number of instructions
  double tensor_fma = 0;    // this warp's quarter of its warpgroup's FMAs
  double fma = 0, alu = 0;  // SM cycles of the FMA pipe (also IMAD) and the ALU
  double special = 0;       // SM cycles of the special-function pipe, such as MUFU
  // Bytes moved between shared memory and registers, including shuffles.
  double shared_bytes = 0;
  // This warp's quarter of the bytes that tensor cores read from shared memory.
  double operand_bytes = 0;
  double global_bytes = 0;  // bytes loaded from and stored to global memory
  // Number of instructions by opcode, for opcodes that are in no table.
  std::map<std::string, int> unknown{};

  Work& operator+=(const Work& other);
  Work& operator*=(double times);  // multiplies all members except `unknown`
};
Work work_of(const Instruction& instruction);
Work work_of(const Kernel& kernel, const Loop& loop);

// SM cycles that the work of several warps takes on each pipe.
struct Cycles {
  double tensor = 0, special = 0, alu = 0, fma = 0, shared = 0, issue = 0, memory = 0;

  double longest_besides_tensor() const;
  // Returns the tensor core utilization if all pipes overlap (best), or if none overlaps (worst).
  double best_share() const;
  double worst_share() const { return tensor / (tensor + longest_besides_tensor()); }
  std::string limit() const;  // name of the busiest pipe
};
Cycles cycles_of(const Work& work, double warps, const Gpu& gpu);

// Returns the thread blocks that fit an SM's registers and shared memory.
int64_t resident_blocks(const Resources& needs, int64_t dynamic_bytes, int arch);

// Formats like printf(), up to 31 characters.
std::string format(const char* pattern, double value);

// Returns the page docs/contributing/bounds.md for the objects in a folder, compiled by this
// version of CUDA.
std::string bounds_page(const std::string& objects, const std::string& cuda_version);

}  // namespace shale::machine_code

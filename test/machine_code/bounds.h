#pragma once

#include <map>
#include <string>
#include <vector>

#include "shale/test/machine_code/sass.h"

// What machine code says of a kernel's speed before it has run: how long each pipe of a
// multiprocessor is busy with a loop. Nothing here was measured.
namespace shale::machine_code {

// A GPU as its maker describes it.
struct Gpu {
  std::string name;
  double multiprocessors = 0, clock_hz = 0;
  double tensor_fma = 0;  // of 16-bit operands, in a cycle of a multiprocessor, dense
  double bytes_per_s = 0;

  double flops() const { return 2 * tensor_fma * multiprocessors * clock_hz; }
  double bytes_per_cycle() const { return bytes_per_s / multiprocessors / clock_hz; }
};
const std::vector<Gpu>& gpus();  // A100, H100, H200

// What one warp gives each pipe.
struct Work {
  double issued = 0;        // instructions
  double tensor_fma = 0;    // the warp's part of a warpgroup's products
  double fma = 0, alu = 0;  // cycles of a multiprocessor's pipes: of floating point and IMAD;
  double special = 0;       //   of integers, comparisons, conversions; of MUFU and the like
  double shared_bytes = 0;  // between shared memory and registers, shuffles included
  double global_bytes = 0;  // loaded and stored
  std::map<std::string, int> unknown{};  // opcodes that no table has

  Work& operator+=(const Work& other);
  Work& operator*=(double times);  // of what is counted; not `unknown`
};
Work work_of(const Instruction& instruction);
Work work_of(const Kernel& kernel, const Loop& loop);

// Cycles that a multiprocessor's pipes are busy with the work of so many warps.
struct Cycles {
  double tensor = 0, special = 0, alu = 0, fma = 0, shared = 0, issue = 0, memory = 0;

  double longest_besides_tensor() const;
  // Of the tensor cores' time, if all runs beside it, and if nothing does.
  double best_share() const;
  double worst_share() const { return tensor / (tensor + longest_besides_tensor()); }
  std::string limit() const;  // the pipe that is busy longest
};
Cycles cycles_of(const Work& work, double warps, const Gpu& gpu);

// Blocks of a kernel that a multiprocessor has registers and shared memory for.
int64_t resident_blocks(const Resources& needs, int64_t dynamic_bytes, int arch);

std::string format(const char* pattern, double value);  // as printf() has it, 31 characters

// The page docs/gpu/bounds.md of the objects in a folder, compiled by that version of CUDA.
std::string bounds_page(const std::string& objects, const std::string& cuda_version);

}  // namespace shale::machine_code

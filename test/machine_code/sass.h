#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Machine code (SASS) of kernels, as printed by cuobjdump and nvdisasm.
namespace shale::machine_code {

struct Instruction {
  uint64_t address = 0;
  std::string opcode;       // opcode with its modifiers: "MUFU.EX2"
  std::string operands;     // text after the opcode, such as "R3, R4"
  bool predicated = false;  // true: has a prefix such as "@!P0"
  // Scheduling information that the compiler writes, since Volta: bits 105 to 121 of the
  // instruction.
  uint32_t control = 0x7e0;

  // Cycles until the next instruction is issued.
  int stall() const { return static_cast<int>(control & 15); }
  // write_board() and read_board() return the scoreboard (of a warp's six) that is set when the
  // result is ready, or when the operands were read; 7: none. The third function returns the
  // scoreboards to wait for, as bits.
  int write_board() const { return static_cast<int>(control >> 5 & 7); }
  int read_board() const { return static_cast<int>(control >> 8 & 7); }
  uint32_t awaited_boards() const { return control >> 11 & 63; }
};

// A loop from instruction `first` to `last`. The last instruction jumps back to the first. Every
// path into the loop begins at the first.
struct Loop {
  size_t first = 0, last = 0;
};

struct Kernel {
  std::string name;          // such as "norm_fwd_kernel<float, 2, false>"
  std::string architecture;  // such as "sm_90a"
  std::vector<Instruction> code{};

  size_t count(std::string_view opcode) const { return count(opcode, {0, code.size() - 1}); }
  // Counts instructions whose opcode starts with `opcode`.
  size_t count(std::string_view opcode, const Loop& within) const;
  std::vector<Loop> loops() const;
  // Returns the possible successors of each instruction.
  std::vector<std::vector<size_t>> next() const;
  // Returns the innermost loops that contain an instruction whose opcode starts with `opcode`. If
  // it is empty, returns all innermost loops.
  std::vector<Loop> inner_loops(std::string_view opcode = "") const;
};

// Parses the kernels in the output of `cuobjdump -sass`.
std::vector<Kernel> read_sass(std::string_view text);

// Returns the kernels of an object file, by cuobjdump, which runs once per process. Throws
// InternalError on failure.
const std::vector<Kernel>& disassemble(const std::string& object, const std::string& architecture);

// Resources that a kernel needs per SM, from its object file.
struct Resources {
  int64_t registers = 0, shared = 0;  // registers per thread; static shared bytes per block
  int64_t max_threads = 1024;         // from __launch_bounds__
};

// Returns the resources of an object's kernels by short name, cached like disassemble(). Empty if
// the file has no kernels.
const std::map<std::string, Resources>& resources_of(const std::string& object,
                                                     const std::string& architecture);

// Shortens a kernel's symbol to "axpby_kernel<float>". The symbol may be mangled, or like
// "shale::kernels::cuda::_GLOBAL__N__0123::axpby_kernel<float>(float const*, long)", or the
// emulator's name of the kernel.
std::string short_name(const std::string& symbol);

// Returns the output of a command. Throws InternalError if the command does not exit with 0.
std::string output_of(const std::string& command);

}  // namespace shale::machine_code

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// The machine code that nvcc made of kernels, as cuobjdump and nvdisasm print it.
namespace shale::machine_code {

struct Instruction {
  uint64_t address = 0;
  std::string opcode;       // with its modifiers: "MUFU.EX2"
  std::string operands;     // "R3, R4"
  bool predicated = false;  // "@!P0" stands before it
  // What the compiler says of its time, from Volta on: bits 105 to 121 of the instruction.
  uint32_t control = 0x7e0;

  int stall() const { return static_cast<int>(control & 15); }  // cycles to the warp's next
  // Of the six scoreboards of a warp that it sets, when its result is there, when its operands have
  // been read; 7: none. And those for which it waits, as bits.
  int write_board() const { return static_cast<int>(control >> 5 & 7); }
  int read_board() const { return static_cast<int>(control >> 8 & 7); }
  uint32_t awaited_boards() const { return control >> 11 & 63; }
};

// Instructions first to last, of which the last jumps back to the first, through which all ways
// lead to it.
struct Loop {
  size_t first = 0, last = 0;
};

struct Kernel {
  std::string name;          // "norm_fwd_kernel<float, 2, false>"
  std::string architecture;  // "sm_90a"
  std::vector<Instruction> code{};

  size_t count(std::string_view opcode) const { return count(opcode, {0, code.size() - 1}); }
  // Counts instructions whose opcode begins so.
  size_t count(std::string_view opcode, const Loop& within) const;
  std::vector<Loop> loops() const;
  // For each instruction those that may be the next.
  std::vector<std::vector<size_t>> next() const;
  // Innermost loops of those that have such an instruction; of all if it is empty.
  std::vector<Loop> inner_loops(std::string_view opcode = "") const;
};

// The kernels in what `cuobjdump -sass` printed.
std::vector<Kernel> read_sass(std::string_view text);

// Those of an object file, by running cuobjdump, once for a program. Throws InternalError where it
// fails.
const std::vector<Kernel>& disassemble(const std::string& object, const std::string& architecture);

// What a kernel needs of a multiprocessor, as the compiler left it in an object file.
struct Resources {
  int64_t registers = 0, shared = 0;  // of a thread; static, of a block in bytes
  int64_t max_threads = 1024;         // __launch_bounds__
};

// Those of an object's kernels, by short name, likewise once; a file may have no kernels of its
// own.
const std::map<std::string, Resources>& resources_of(const std::string& object,
                                                     const std::string& architecture);

// "shale::kernels::cuda::_GLOBAL__N__0123::axpby_kernel<float>(float const*, long)", demangled or
// not, as "axpby_kernel<float>"; the emulator's name of a kernel gives the same.
std::string short_name(const std::string& symbol);

// What a command prints. Throws InternalError where it does not end with 0.
std::string output_of(const std::string& command);

}  // namespace shale::machine_code

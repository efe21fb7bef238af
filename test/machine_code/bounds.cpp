#include "shale/test/machine_code/bounds.h"

#include <algorithm>
#include <cstdio>
#include <regex>
#include <set>

#include "shale/base/gpu_model.h"
#include "shale/base/text.h"

namespace shale::machine_code {
namespace {

constexpr double kLanes = 32;

// SM cycles that one instruction of a warp takes on a pipe with 128, 64 or 16 lanes per cycle (CUDA
// C++ Programming Guide, "Arithmetic Instructions").
constexpr double kFull = kLanes / 128, kHalf = kLanes / 64, kSpecial = kLanes / 16;
constexpr double kIssue = 0.25;  // each of an SM's four schedulers issues one instruction per cycle
constexpr double kSharedBytesPerCycle = 128;

std::string stem_of(const std::string& opcode) {
  return opcode.substr(0, opcode.find('.'));
}

// Returns the bytes per lane that a load or store moves.
double width_of(const std::string& opcode) {
  if (opcode.find(".128") != std::string::npos) return 16;
  if (opcode.find(".64") != std::string::npos) return 8;
  if (opcode.find("16") != std::string::npos && opcode.find("U16") != std::string::npos) return 2;
  if (opcode.find("U8") != std::string::npos || opcode.find("S8") != std::string::npos) return 1;
  return 4;
}

// Sets one warp's tensor core work: a quarter of an "HGMMA.64x128x16.F32.BF16", which four warps
// share, or a whole "HMMA.16816.F32.BF16". HGMMA reads B from shared memory, and also A unless A is
// in registers. Its operands begin with "R24, gdesc[UR8], ..." or "R24, R4, gdesc[UR8], ...".
void set_tensor_work(const Instruction& instruction, Work& work) {
  static const std::regex warpgroup(R"(HGMMA\.(\d+)x(\d+)x(\d+).*)");
  const std::string& opcode = instruction.opcode;
  std::smatch match;
  if (std::regex_match(opcode, match, warpgroup)) {
    const double m = std::stod(match[1]), n = std::stod(match[2]), k = std::stod(match[3]);
    const size_t second = instruction.operands.find(", ");
    const bool shares_a =
        second != std::string::npos && instruction.operands.compare(second + 2, 5, "gdesc") == 0;
    work.tensor_fma = m * n * k / 4;
    work.operand_bytes = ((shares_a ? m : 0) + n) * k * 2 / 4;
  } else if (opcode.starts_with("HMMA.16816")) {
    work.tensor_fma = 16 * 8 * 16;
  } else if (opcode.starts_with("HMMA.1688")) {
    work.tensor_fma = 16 * 8 * 8;
  }
}

const std::set<std::string> kFloat = {"FFMA", "FMUL", "FADD", "HFMA2", "HADD2", "HMUL2", "FFMA32I"};
const std::set<std::string> kSpecials = {"MUFU", "I2F", "F2I", "F2F", "POPC", "FLO", "BREV"};
const std::set<std::string> kIntegers = {
    "IADD3", "LOP3",      "ISETP", "SHF",  "PRMT",  "SEL",    "FSEL",   "FSETP", "FMNMX", "IMNMX",
    "LEA",   "MOV",       "CS2R",  "F2FP", "VIADD", "VIMNMX", "PLOP3",  "I2FP",  "IABS",  "P2R",
    "R2P",   "VIADDMNMX", "SGXT",  "FCHK", "BMSK",  "HSETP2", "HMNMX2", "LOP",   "IADD",  "F2IP"};
// Instructions that occupy only an issue slot: control, barriers, the uniform datapath, constants.
const std::set<std::string> kIssued = {
    "BRA",       "EXIT",          "BSSY",   "BSYNC",     "BAR",   "NOP",          "WARPSYNC",
    "WARPGROUP", "DEPBAR",        "SYNCS",  "LDGDEPBAR", "CALL",  "RET",          "YIELD",
    "MEMBAR",    "FENCE",         "S2R",    "S2UR",      "LDC",   "ELECT",        "VOTE",
    "PREEXIT",   "ACQBULK",       "BREAK",  "ERRBAR",    "CCTL",  "WARPGROUPSET", "ARRIVES",
    "BMOV",      "ENDCOLLECTIVE", "CREDUX", "R2UR",      "REDUX", "NANOSLEEP",    "MATCH",
    "VOTEU",     "HGMMA",         "HMMA",   "CGAERRBAR", "UCGABAR_ARV", "UCGABAR_WAIT"};

}  // namespace

std::string format(const char* pattern, double value) {
  char text[32];
  std::snprintf(text, sizeof text, pattern, value);
  return text;
}

const std::vector<Gpu>& gpus() {
  // Numbers from the data sheets: dense bf16 of 312 and 989 TFLOP/s is 1024 and 2048 FMAs a cycle
  // at boost clock.
  static const std::vector<Gpu> all = {{"A100", 108, 1.41e9, 1024, 2.039e12},
                                       {"H100", 132, 1.83e9, 2048, 3.35e12},
                                       {"H200", 132, 1.83e9, 2048, 4.8e12}};
  return all;
}

Work& Work::operator+=(const Work& other) {
  issued += other.issued, tensor_fma += other.tensor_fma;
  fma += other.fma, alu += other.alu, special += other.special;
  shared_bytes += other.shared_bytes, operand_bytes += other.operand_bytes;
  global_bytes += other.global_bytes;
  for (const auto& [opcode, count] : other.unknown) unknown[opcode] += count;
  return *this;
}

Work& Work::operator*=(double times) {
  for (double* const part :
       {&issued, &tensor_fma, &fma, &alu, &special, &shared_bytes, &operand_bytes, &global_bytes}) {
    *part *= times;
  }
  return *this;
}

Work work_of(const Instruction& instruction) {
  const std::string& opcode = instruction.opcode;
  const std::string stem = stem_of(opcode);
  const double bytes = width_of(opcode) * kLanes;
  Work work{.issued = 1};
  set_tensor_work(instruction, work);
  if (kFloat.count(stem)) {
    work.fma = kFull;
  } else if (stem == "IMAD" || stem == "IDP") {
    work.fma = kHalf;
  } else if (kSpecials.count(stem)) {
    work.special = kSpecial;
  } else if (kIntegers.count(stem)) {
    work.alu = kHalf;
  } else if (stem == "LDS" || stem == "STS" || stem == "ATOMS" || stem == "SHFL" || stem == "LDL" ||
             stem == "STL") {  // spilled registers are in the L1 cache, which is the same memory
    work.shared_bytes = stem == "SHFL" ? 4 * kLanes : bytes;
  } else if (stem == "LDSM" || stem == "STSM") {
    work.shared_bytes = 128 * (opcode.ends_with(".4") ? 4 : opcode.ends_with(".2") ? 2 : 1);
  } else if (stem == "LDGSTS") {
    work.shared_bytes = work.global_bytes = bytes;
  } else if (stem == "LDG" || stem == "STG" || stem == "RED" || stem == "REDG" || stem == "ATOMG" ||
             stem == "LD" || stem == "ST") {
    work.global_bytes = bytes;
  } else if (!kIssued.count(stem) && !stem.starts_with("U")) {
    work.unknown[stem] = 1;
  }
  return work;
}

Work work_of(const Kernel& kernel, const Loop& loop) {
  Work work;
  for (size_t i = loop.first; i <= loop.last; ++i) work += work_of(kernel.code[i]);
  return work;
}

double Cycles::longest_besides_tensor() const {
  return std::max({special, alu, fma, shared, issue});
}

double Cycles::best_share() const {
  return tensor / std::max(tensor, longest_besides_tensor());
}

std::string Cycles::limit() const {
  const std::pair<double, const char*> pipes[] = {
      {tensor, "tensor cores"},  {special, "special functions"},
      {alu, "integers"},         {fma, "FMA"},
      {shared, "shared memory"}, {issue, "issue"},
      {memory, "memory"}};
  return std::max_element(std::begin(pipes), std::end(pipes))->second;
}

Cycles cycles_of(const Work& work, double warps, const Gpu& gpu) {
  return {.tensor = warps * work.tensor_fma / gpu.tensor_fma,
          .special = warps * work.special,
          .alu = warps * work.alu,
          .fma = warps * work.fma,
          .shared = warps * work.shared_bytes / kSharedBytesPerCycle,
          .issue = warps * work.issued * kIssue,
          .memory = warps * work.global_bytes / gpu.bytes_per_cycle()};
}

int64_t resident_blocks(const Resources& needs, int64_t dynamic_bytes, int arch) {
  constexpr int64_t kRegisters = 65536, kUnit = 256, kSystem = 1024, kMaxThreads = 2048;
  const int64_t warps = (needs.max_threads + 31) / 32;
  const int64_t of_warp = (needs.registers * 32 + kUnit - 1) / kUnit * kUnit;
  const int64_t shared = needs.shared + dynamic_bytes + kSystem;
  const auto all = static_cast<int64_t>(gpu_model(arch).block_shared_bytes) + kSystem;
  return std::min({kRegisters / (warps * of_warp), all / shared, kMaxThreads / (warps * 32)});
}

}  // namespace shale::machine_code

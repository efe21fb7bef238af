#include "shale/test/machine_code/rules.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <regex>

#include "shale/base/error.h"

namespace shale::machine_code {
namespace {

std::string place(const Kernel& kernel, size_t index) {
  char address[24];
  std::snprintf(address, sizeof address, " at %04llx",
                static_cast<unsigned long long>(kernel.code[index].address));
  return cat(kernel.name, address, ": ");
}

// Returns true for an instruction that waits until at most `left` groups of matmuls are pending:
// WARPGROUP.DEPBAR with operands such as "gsb0, 0x1".
bool waits_for_all_but(const Instruction& instruction, int left) {
  return instruction.opcode.starts_with("WARPGROUP.DEPBAR") &&
         instruction.operands.ends_with(cat("0x", left));
}

}  // namespace

Findings exponentials_beside_products(const Kernel& kernel) {
  Findings findings;
  for (const Loop& loop : kernel.inner_loops("HGMMA")) {
    const size_t all = kernel.count("MUFU.EX2", loop);
    if (all == 0) continue;
    size_t one_left = loop.first, none_left;
    while (one_left <= loop.last && !waits_for_all_but(kernel.code[one_left], 1)) ++one_left;
    none_left = one_left;
    while (none_left <= loop.last && !waits_for_all_but(kernel.code[none_left], 0)) ++none_left;
    if (none_left > loop.last) {
      findings.push_back(cat(place(kernel, loop.first), "the loop has not both waits"));
      continue;
    }
    const size_t between = kernel.count("MUFU.EX2", {one_left, none_left});
    if (between == all) continue;
    findings.push_back(cat(place(kernel, none_left), between, " of ", all,
                           " exponentials stand before the wait for the second product"));
  }
  return findings;
}

Findings work_beside_products(const Kernel& kernel) {
  constexpr std::array kWork = {"MUFU.EX2", "F2FP", "STS", "BAR.SYNC"};
  Findings findings;
  for (const Loop& loop : kernel.inner_loops("HGMMA")) {
    if (kernel.count("MUFU.EX2", loop) == 0) continue;
    int groups = 0;         // pending matmul groups
    bool in_group = false;  // in a group whose last matmul is still to come
    for (size_t i = loop.first; i <= loop.last; ++i) {
      const Instruction& instruction = kernel.code[i];
      if (instruction.opcode.starts_with("HGMMA")) {
        groups += !in_group;
        in_group = instruction.operands.find("gsb0") == std::string::npos;
      }
      for (const int left : {0, 1}) {
        if (waits_for_all_but(instruction, left)) groups = std::min(groups, left);
      }
      const bool works = std::any_of(kWork.begin(), kWork.end(), [&](const char* opcode) {
        return instruction.opcode.starts_with(opcode);
      });
      if (works && groups == 0) {
        findings.push_back(
            cat(place(kernel, i), instruction.opcode, " stands where no product is under way"));
      }
    }
  }
  return findings;
}

Findings few_exponentials(const Kernel& kernel, size_t most, size_t most_products) {
  size_t fewest = kernel.code.size(), products = kernel.code.size();
  for (const Loop& loop : kernel.inner_loops("HGMMA")) {
    const size_t exponentials = kernel.count("MUFU.EX2", loop);
    if (exponentials == 0) continue;
    fewest = std::min(fewest, exponentials);
    products = std::min(products, kernel.count("FMUL", loop));
  }
  if (fewest <= most && products <= most_products) return {};
  return {cat(kernel.name, ": ", fewest, " exponentials and ", products,
              " products of floats in a tile, expected at most ", most, " and ", most_products)};
}

Findings whole_stores(const Kernel& kernel) {
  // Matches operands such as "desc[UR4][R2.64+0x8], R5".
  static const std::regex address(R"((.*\[\w+\.64)(?:\+(-?0x[0-9a-f]+))?\], .*)");
  Findings findings;
  // Offsets of the stores since the last jump, by base address.
  std::map<std::string, std::vector<int64_t>> offsets;
  for (size_t i = 0; i < kernel.code.size(); ++i) {
    const Instruction& instruction = kernel.code[i];
    if (instruction.opcode.starts_with("BRA") || instruction.opcode.starts_with("EXIT")) {
      offsets.clear();
    }
    std::smatch match;
    if (instruction.opcode != "STG.E" || !std::regex_match(instruction.operands, match, address)) {
      continue;
    }
    auto& of_base = offsets[match[1]];
    of_base.push_back(match[2].matched ? std::strtoll(match[2].str().c_str(), nullptr, 16) : 0);
    const auto has = [&](int64_t offset) {
      return std::find(of_base.begin(), of_base.end(), offset) != of_base.end();
    };
    for (const int64_t first : of_base) {
      if (has(first + 4) && has(first + 8) && has(first + 12)) {
        findings.push_back(cat(place(kernel, i), "four stores of 4 bytes where 16 were meant"));
        offsets.clear();
        break;
      }
    }
  }
  return findings;
}

Findings uniform_descriptors(const Kernel& kernel) {
  Findings findings;
  for (const char* opcode : {"HGMMA", "QGMMA"}) {  // opcodes of 16-bit and 8-bit matmuls
    for (const Loop& loop : kernel.inner_loops(opcode)) {
      const size_t products = kernel.count(opcode, loop), moves = kernel.count("R2UR", loop);
      // Kernels for heads of 256 have more descriptors than uniform registers: two of three
      // descriptors are moved.
      const size_t most = products >= 20 ? products * 2 / 3 : products / 6;
      if (moves <= most) continue;
      findings.push_back(cat(place(kernel, loop.first), moves, " registers are moved for ",
                             products, " products"));
    }
  }
  return findings;
}

Findings sums_beside_products(const Kernel& kernel) {
  Findings findings;
  const std::vector<Loop> loops = kernel.inner_loops("QGMMA");
  if (loops.empty()) findings.push_back(cat(kernel.name, " has no loop with products of 8 bits"));
  for (const Loop& loop : loops) {
    size_t waits = 0;
    for (size_t i = loop.first; i <= loop.last; ++i) {
      waits += waits_for_all_but(kernel.code[i], 1);
      if (!waits_for_all_but(kernel.code[i], 0)) continue;
      findings.push_back(cat(place(kernel, i), "the loop waits for all products"));
    }
    if (waits > 0 && kernel.count("FFMA", loop) > 0) continue;
    findings.push_back(cat(place(kernel, loop.first), "no sums between the products"));
  }
  return findings;
}

Findings no_division(const Kernel& kernel) {
  Findings findings;
  for (const Loop& loop : kernel.inner_loops()) {
    for (size_t i = loop.first; i <= loop.last; ++i) {
      // Integer division starts with a reciprocal estimate that rounds up; no other code does.
      const std::string& opcode = kernel.code[i].opcode;
      if (opcode.starts_with("I2F") && opcode.ends_with(".RP")) {
        findings.push_back(cat(place(kernel, i), "an integer division in a loop"));
      }
    }
  }
  return findings;
}

Findings fast_rounding(const Kernel& kernel) {
  Findings findings;
  for (size_t i = 0; i < kernel.code.size(); ++i) {
    if (kernel.code[i].opcode.starts_with("F2F.")) {
      findings.push_back(cat(place(kernel, i), kernel.code[i].opcode));
    }
  }
  return findings;
}

Findings boxes_from_registers(const Kernel& kernel, size_t most) {
  constexpr size_t kOfBox = 4;
  size_t shortest = kernel.code.size(), begin = 0;
  for (size_t i = 0; i < kernel.code.size(); ++i) {
    if (!kernel.code[i].opcode.starts_with("UTMASTG")) continue;
    if (kernel.count("STSM", {begin, i}) == kOfBox) shortest = std::min(shortest, i - begin);
    begin = i;
  }
  if (shortest <= most) return {};
  return {cat(kernel.name, ": a box of results takes ", shortest,
              " instructions, expected at most ", most)};
}

Findings turns_pass_before_waits(const Kernel& kernel) {
  Findings findings;
  for (const Loop& loop : kernel.inner_loops("HGMMA")) {
    size_t at = loop.last;
    while (at < kernel.code.size() && !waits_for_all_but(kernel.code[at], 0)) ++at;
    if (at < kernel.code.size() && kernel.count("BAR.ARV", {loop.last, at}) > 0) continue;
    findings.push_back(cat(place(kernel, loop.last), "the turn is not passed on before the wait"));
  }
  return findings;
}

Findings next_tile_behind_copies(const Kernel& kernel) {
  static const std::regex answer(R"(PT, (R\d+), .*)");
  Findings findings;
  std::smatch match;
  for (size_t i = 0; i < kernel.code.size(); ++i) {
    const Instruction& asks = kernel.code[i];
    if (!asks.opcode.starts_with("ATOMG.E.INC") ||
        !std::regex_match(asks.operands, match, answer)) {
      continue;
    }
    const std::regex used(cat("\\b", match[1].str(), "\\b"));
    const auto waits = [&](const Instruction& next) {
      return std::regex_search(next.operands, used);
    };
    size_t at = i + 1;
    while (at < kernel.code.size() && !kernel.code[at].opcode.starts_with("UTMALDG") &&
           !waits(kernel.code[at])) {
      ++at;
    }
    // Blocks that share a tile have another atomic operation, which counts their parts and whose
    // result they need immediately.
    if (at == kernel.code.size() || !waits(kernel.code[at])) return {};
    findings.push_back(cat(place(kernel, at), "waits for the next tile before this one is copied"));
  }
  if (findings.empty()) return {cat(kernel.name, ": nothing asks for the next tile")};
  return {findings.back()};
}

Findings stages_without_fences(const Kernel& kernel) {
  Findings findings;
  size_t loops = 0;
  for (const char* const opcode : {"HGMMA", "UTMALDG"}) {
    for (const Loop& loop : kernel.inner_loops(opcode)) {
      ++loops;
      if (kernel.count("MEMBAR", loop) == 0) continue;
      findings.push_back(cat(place(kernel, loop.first), "a loop with ", opcode, " has a fence"));
    }
  }
  if (loops < 2)
    findings.push_back(cat(kernel.name, ": ", loops, " loops with stages, expected more"));
  return findings;
}

Findings within_budget(const Kernel& kernel, size_t most) {
  if (kernel.code.size() <= most) return {};
  return {cat(kernel.name, ": ", kernel.code.size(), " instructions, expected at most ", most)};
}

}  // namespace shale::machine_code

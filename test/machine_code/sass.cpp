#include "shale/test/machine_code/sass.h"

#include <cxxabi.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <regex>
#include <sstream>

#include "shale/base/error.h"

namespace shale::machine_code {
namespace {

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

// Parses a line such as "        /*00e0*/              @!P0 BRA P1, 0x2a0 ;           /* 0x... */".
bool read_instruction(std::string_view line, Instruction& out) {
  const size_t open = line.find("/*"), close = line.find("*/"), end = line.find(';');
  if (open == std::string_view::npos || close < open || end == std::string_view::npos ||
      trimmed(line.substr(0, open)) != "") {
    return false;
  }
  out.address = std::strtoull(std::string(line.substr(open + 2)).c_str(), nullptr, 16);
  std::string_view rest = trimmed(line.substr(close + 2, end - close - 2));
  out.predicated = rest.starts_with('@');
  if (out.predicated) rest = trimmed(rest.substr(std::min(rest.find(' '), rest.size())));
  const size_t space = std::min(rest.find(' '), rest.size());
  out.opcode = rest.substr(0, space);
  out.operands = trimmed(rest.substr(space));
  return !out.opcode.empty();
}

// Parses the upper half of an instruction's bits, which cuobjdump prints on a line of its own: " /*
// 0x000fe20000000f00 */"
bool read_control(std::string_view line, uint32_t& control) {
  std::string_view rest = trimmed(line);
  if (!rest.starts_with("/* 0x") || !rest.ends_with("*/")) return false;
  const uint64_t upper = std::strtoull(std::string(rest.substr(3)).c_str(), nullptr, 16);
  control = static_cast<uint32_t>(upper >> (105 - 64)) & 0x1ffff;
  return true;
}

std::string_view after(std::string_view line, std::string_view word) {
  const size_t at = line.find(word);
  return at == std::string_view::npos ? std::string_view() : trimmed(line.substr(at + word.size()));
}

// Control flow graph: predecessors and successors of each instruction.
class Flow {
 public:
  explicit Flow(const std::vector<Instruction>& code) : before_(code.size()), next_(code.size()) {
    std::map<uint64_t, size_t> places;
    for (size_t i = 0; i < code.size(); ++i) places[code[i].address] = i;
    for (size_t i = 0; i < code.size(); ++i) {
      const std::string &opcode = code[i].opcode, &operands = code[i].operands;
      bool goes_on = code[i].predicated;
      if (const size_t at = operands.rfind("0x"); opcode.starts_with("BRA")) {
        // A branch with operands such as "P1, 0x40" has a condition.
        goes_on = goes_on || operands.find(',') != std::string::npos;
        if (at == std::string::npos) continue;
        const auto target = places.find(std::strtoull(operands.c_str() + at, nullptr, 16));
        if (target == places.end()) continue;
        add(i, target->second);
        if (target->second < i) back_jumps_.push_back({target->second, i});
      } else {
        goes_on = goes_on || !(opcode.starts_with("EXIT") || opcode.starts_with("RET"));
      }
      if (goes_on && i + 1 < code.size()) add(i, i + 1);
    }
  }

  const std::vector<std::vector<size_t>>& next() const { return next_; }
  const std::vector<Loop>& back_jumps() const { return back_jumps_; }

  // Returns true if all paths from the kernel's start to the loop's last instruction lead through
  // its first. Wait loops after a kernel's end also jump back, but to other code.
  bool is_loop(const Loop& jump) const {
    std::vector<bool> seen(before_.size());
    std::vector<size_t> open = {jump.last};
    seen[jump.first] = seen[jump.last] = true;
    while (!open.empty()) {
      const size_t at = open.back();
      open.pop_back();
      if (at == 0) return false;
      for (const size_t from : before_[at]) {
        if (!seen[from]) open.push_back(from);
        seen[from] = true;
      }
    }
    return true;
  }

 private:
  void add(size_t from, size_t to) {
    before_[to].push_back(from);
    next_[from].push_back(to);
  }

  std::vector<std::vector<size_t>> before_, next_;
  std::vector<Loop> back_jumps_;
};

// Parses two outputs of cuobjdump: of -res-usage (" Function NAME:" and "  REG:168 STACK:0
// SHARED:1024 ..." per architecture), and of -elf (".nv.info.NAME" with the launch bounds
// attribute).
std::map<std::string, Resources> read_resources(const std::string& object,
                                                const std::string& architecture) {
  std::map<std::string, Resources> table;
  std::istringstream usage(
      output_of(cat(SHALE_CUOBJDUMP " -res-usage -arch ", architecture, " ", object)));
  static const std::regex function(R"( Function (\S+):)");
  static const std::regex numbers(R"(.*REG:(\d+) .*SHARED:(\d+) .*)");
  std::string line, name;
  std::smatch match;
  while (std::getline(usage, line)) {
    if (std::regex_match(line, match, function)) name = short_name(match[1]);
    if (std::regex_match(line, match, numbers)) {
      table[name] = {.registers = std::stoll(match[1]), .shared = std::stoll(match[2])};
    }
  }
  std::istringstream elf(
      output_of(cat(SHALE_CUOBJDUMP " -elf -arch ", architecture, " ", object,
                    " | { grep -A2 -E '^\\.nv\\.info\\.|EIATTR_MAX_THREADS' || true; }")));
  bool is_bound = false;
  while (std::getline(elf, line)) {
    if (line.starts_with(".nv.info.")) name = short_name(line.substr(9));
    if (line.find("EIATTR_") != std::string::npos) {
      is_bound = line.find("EIATTR_MAX_THREADS") != std::string::npos;
    }
    if (const size_t at = line.find("Value:"); is_bound && at != std::string::npos) {
      std::istringstream values(line.substr(at + 6));
      int64_t x = 1, y = 1, z = 1;
      values >> std::hex >> x >> y >> z;
      table[name].max_threads = x * y * z;
    }
  }
  return table;
}

std::vector<Kernel> read_kernels(const std::string& object, const std::string& architecture) {
  return read_sass(output_of(cat(SHALE_CUOBJDUMP " -sass -arch ", architecture, " ", object)));
}

// Returns kRead(object, architecture), which is called once per process and then cached.
template <auto kRead>
const auto& once(const std::string& object, const std::string& architecture) {
  static std::map<std::pair<std::string, std::string>, decltype(kRead(object, architecture))> all;
  const std::pair key(object, architecture);
  auto entry = all.find(key);
  if (entry == all.end()) entry = all.emplace(key, kRead(object, architecture)).first;
  return entry->second;
}

}  // namespace

std::vector<Loop> Kernel::loops() const {
  const Flow flow(code);
  std::vector<Loop> loops;
  for (const Loop& jump : flow.back_jumps()) {
    if (flow.is_loop(jump)) loops.push_back(jump);
  }
  return loops;
}

std::vector<std::vector<size_t>> Kernel::next() const {
  return Flow(code).next();
}

size_t Kernel::count(std::string_view opcode, const Loop& within) const {
  size_t found = 0;
  for (size_t i = within.first; i <= within.last; ++i) found += code[i].opcode.starts_with(opcode);
  return found;
}

std::vector<Loop> Kernel::inner_loops(std::string_view opcode) const {
  std::vector<Loop> loops = this->loops();
  if (!opcode.empty()) {
    std::erase_if(loops, [&](const Loop& loop) { return count(opcode, loop) == 0; });
  }
  std::vector<Loop> inner;
  for (const Loop& loop : loops) {
    const bool has_other = std::any_of(loops.begin(), loops.end(), [&](const Loop& other) {
      return other.first >= loop.first && other.last <= loop.last &&
             (other.first > loop.first || other.last < loop.last);
    });
    if (!has_other) inner.push_back(loop);
  }
  return inner;
}

std::vector<Kernel> read_sass(std::string_view text) {
  std::vector<Kernel> kernels;
  std::string architecture;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    Instruction instruction;
    if (const auto name = after(line, "Function : "); !name.empty()) {
      kernels.push_back({.name = short_name(std::string(name)), .architecture = architecture});
    } else if (const auto target = after(line, "code for "); !target.empty()) {
      architecture = target;
    } else if (!kernels.empty() && read_instruction(line, instruction)) {
      kernels.back().code.push_back(std::move(instruction));
    } else if (uint32_t control = 0;
               !kernels.empty() && !kernels.back().code.empty() && read_control(line, control)) {
      kernels.back().code.back().control = control;
    }
  }
  std::erase_if(kernels, [](const Kernel& kernel) { return kernel.code.empty(); });
  return kernels;
}

std::string short_name(const std::string& symbol) {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> demangled(
      abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status), std::free);
  std::string name = demangled ? demangled.get() : symbol;
  static const std::regex scopes(
      R"(\(anonymous namespace\)::|_GLOBAL__N_\w+::|shale::kernels::(cuda|emu)::|shale::|^void )");
  name = std::regex_replace(name, scopes, "");
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) throw InternalError(cat("cannot run ", command));
  std::string text;
  std::array<char, 1 << 16> buffer;
  for (size_t got; (got = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), got);
  }
  if (const int status = pclose(pipe); status != 0) {
    throw InternalError(cat(command, " ended with ", status));
  }
  return text;
}

const std::map<std::string, Resources>& resources_of(const std::string& object,
                                                     const std::string& architecture) {
  return once<read_resources>(object, architecture);
}

const std::vector<Kernel>& disassemble(const std::string& object, const std::string& architecture) {
  return once<read_kernels>(object, architecture);
}

}  // namespace shale::machine_code

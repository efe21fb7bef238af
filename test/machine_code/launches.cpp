// The launches that the kernels' tests made on the emulator, held to what a GPU would allow the
// compiled kernels: registers and static shared memory, which the emulator does not know.
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "shale/base/error.h"
#include "shale/test/machine_code/sass.h"
#include "shale/test/support/catch.h"

namespace shale::machine_code {
namespace {

// Resources of a kernel, as the compiler left it in an object file.
struct Needs {
  int64_t registers = 0, shared = 0;  // of a thread; static, of a block in bytes
  int64_t max_threads = 1024;         // __launch_bounds__
};

struct Launch {
  std::string kernel;
  int arch = 0;
  int64_t threads = 0, dynamic_bytes = 0;
};

// What a GPU refuses of it; empty if nothing (CUDA C++ Programming Guide, "Technical Specifications
// per Compute Capability": 64 K registers, given to warps by 256).
std::string refusal(const Launch& launch, const Needs& needs) {
  constexpr int64_t kRegisters = 65536, kWarp = 32, kUnit = 256, kDynamicAlignment = 1024;
  const int64_t most_shared = (launch.arch >= 90 ? 227 : 163) * 1024;
  const auto up = [](int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; };
  const int64_t registers = up(launch.threads, kWarp) / kWarp * up(needs.registers * kWarp, kUnit);
  const int64_t shared = launch.dynamic_bytes == 0
                             ? needs.shared
                             : up(needs.shared, kDynamicAlignment) + launch.dynamic_bytes;
  if (launch.threads > needs.max_threads) {
    return cat(launch.threads, " threads, the kernel is bounded to ", needs.max_threads);
  }
  if (registers > kRegisters) {
    return cat(launch.threads, " threads of ", needs.registers, " registers, which are ", registers,
               " in all, a block has ", kRegisters);
  }
  if (shared > most_shared) {
    return cat(shared, " bytes of shared memory, static and dynamic, a block has ", most_shared);
  }
  return "";
}

using Table = std::map<std::pair<std::string, int>, Needs>;

// `cuobjdump -res-usage`: " Function NAME:" and "  REG:168 STACK:0 SHARED:1024 ..." by file of one
// architecture; `cuobjdump -elf`: ".nv.info.NAME" and the attribute of its bounds.
void read_needs(const std::string& object, int arch, Table& table) {
  const std::string target = cat("sm_", arch, object.find("90") == std::string::npos ? "" : "a");
  std::istringstream usage(
      output_of(cat(SHALE_CUOBJDUMP " -res-usage -arch ", target, " ", object)));
  static const std::regex function(R"( Function (\S+):)");
  static const std::regex numbers(R"(.*REG:(\d+) .*SHARED:(\d+) .*)");
  std::string line, name;
  std::smatch match;
  while (std::getline(usage, line)) {
    if (std::regex_match(line, match, function)) name = short_name(match[1]);
    if (std::regex_match(line, match, numbers)) {
      table[{name, arch}] = {.registers = std::stoll(match[1]), .shared = std::stoll(match[2])};
    }
  }
  // A file may have no kernels of its own.
  std::istringstream elf(
      output_of(cat(SHALE_CUOBJDUMP " -elf -arch ", target, " ", object,
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
      table[{name, arch}].max_threads = x * y * z;
    }
  }
}

Table needs_of_all_kernels() {
  Table table;
  for (const auto& entry : std::filesystem::directory_iterator(SHALE_CUDA_OBJECTS)) {
    if (entry.path().extension() != ".o") continue;
    const bool hopper = entry.path().stem().string().find("90") != std::string::npos;
    if (!hopper) read_needs(entry.path().string(), 80, table);
    read_needs(entry.path().string(), 90, table);
  }
  return table;
}

}  // namespace

TEST_CASE("launches fit the kernels' bounds, registers and shared memory", "[machine_code]") {
  std::vector<Launch> launches;
  for (const auto& entry : std::filesystem::directory_iterator(SHALE_EMULATED_LAUNCHES)) {
    std::ifstream file(entry.path());
    Launch launch;
    std::string symbol;
    while (file >> symbol >> launch.arch >> launch.threads >> launch.dynamic_bytes) {
      launch.kernel = short_name(symbol);
      launches.push_back(launch);
    }
  }
  if (launches.empty()) {
    WARN("skipped: launches, as the kernels' tests have not run in this build folder");
    return;
  }
  const Table table = needs_of_all_kernels();
  REQUIRE_FALSE(table.empty());
  size_t known = 0;
  for (const Launch& launch : launches) {
    const auto needs = table.find({launch.kernel, launch.arch});
    if (needs == table.end()) continue;  // of a test
    ++known;
    const std::string why = refusal(launch, needs->second);
    if (!why.empty())
      FAIL_CHECK(launch.kernel << " on compute capability " << launch.arch << ": " << why);
  }
  CHECK(known > 100);
}

TEST_CASE("launches that a GPU refuses are found", "[machine_code]") {
  const Needs needs = {.registers = 64, .shared = 512, .max_threads = 512};
  CHECK(refusal({"k", 90, 512, 226 * 1024}, needs).empty());
  CHECK(test::contains(refusal({"k", 90, 544, 0}, needs), "544 threads, the kernel is bounded"));
  CHECK(test::contains(refusal({"k", 90, 512, 226 * 1024 + 1}, needs), "bytes of shared memory"));
  CHECK(test::contains(refusal({"k", 80, 512, 163 * 1024}, needs), "a block has 166912"));
  const Needs many = {.registers = 129, .shared = 0, .max_threads = 1024};
  CHECK(refusal({"k", 90, 480, 0}, many).empty());
  CHECK(test::contains(refusal({"k", 90, 512, 0}, many), "512 threads of 129 registers"));
}

}  // namespace shale::machine_code

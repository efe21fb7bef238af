// Checks the launches that kernel tests made on the emulator against the GPU limits of the compiled
// kernels. The emulator does not know a kernel's registers and static shared memory.
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/test/machine_code/sass.h"
#include "shale/test/support/catch.h"

namespace shale::machine_code {
namespace {

struct Launch {
  std::string kernel;
  int arch = 0;
  int64_t threads = 0, dynamic_bytes = 0;
};

// Returns the reason for which a GPU would refuse the launch, or "" (CUDA C++ Programming Guide,
// "Technical Specifications per Compute Capability": 64 K registers, allocated to warps in units of
// 256).
std::string refusal(const Launch& launch, const Resources& needs) {
  constexpr int64_t kRegisters = 65536, kWarp = 32, kUnit = 256, kDynamicAlignment = 1024;
  const auto most_shared = static_cast<int64_t>(gpu_model(launch.arch).block_shared_bytes);
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

using Table = std::map<std::pair<std::string, int>, Resources>;

Table needs_of_all_kernels() {
  Table table;
  for (const auto& entry : std::filesystem::directory_iterator(SHALE_CUDA_OBJECTS)) {
    if (entry.path().extension() != ".o") continue;
    const bool hopper = entry.path().stem().string().find("90") != std::string::npos;
    for (const int arch : {80, 90}) {
      if (hopper && arch != 90) continue;
      const std::string target = cat("sm_", arch, hopper ? "a" : "");
      for (auto [name, needs] : resources_of(entry.path().string(), target)) {
        // In objects for 9.0, but not for 8.0, shared memory includes the KiB that is reserved for
        // each block. That KiB does not count towards the limit.
        if (arch == 90 && needs.shared > 0) needs.shared -= 1024;
        table[{name, arch}] = needs;
      }
    }
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
    // Where this build has no code for a GPU, the GPU runs the code for 8.0.
    auto needs = table.find({launch.kernel, launch.arch});
    if (needs == table.end()) needs = table.find({launch.kernel, 80});
    // Only a test defines this kernel, so the library does not contain it.
    if (needs == table.end()) continue;
    ++known;
    const std::string why = refusal(launch, needs->second);
    if (!why.empty())
      FAIL_CHECK(launch.kernel << " on compute capability " << launch.arch << ": " << why);
  }
  CHECK(known > 100);
}

TEST_CASE("launches that a GPU refuses are found", "[machine_code]") {
  const Resources needs = {.registers = 64, .shared = 512, .max_threads = 512};
  CHECK(refusal({"k", 90, 512, 226 * 1024}, needs).empty());
  CHECK(test::contains(refusal({"k", 90, 544, 0}, needs), "544 threads, the kernel is bounded"));
  CHECK(test::contains(refusal({"k", 90, 512, 226 * 1024 + 1}, needs), "bytes of shared memory"));
  CHECK(test::contains(refusal({"k", 80, 512, 163 * 1024}, needs), "a block has 166912"));
  const Resources many = {.registers = 129, .shared = 0, .max_threads = 1024};
  CHECK(refusal({"k", 90, 480, 0}, many).empty());
  CHECK(test::contains(refusal({"k", 90, 512, 0}, many), "512 threads of 129 registers"));
}

}  // namespace shale::machine_code

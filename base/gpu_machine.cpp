#include "shale/base/gpu_machine.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale {
namespace {

struct Row {
  std::string address, arch, reached, name;
};

std::vector<Row> read_rows(const std::string& file) {
  std::ifstream stream(file);
  if (!stream) throw ConfigError(cat("SHALE_MACHINE: cannot read ", file));
  std::vector<Row> rows;
  for (std::string line; std::getline(stream, line);) {
    std::istringstream words(line);
    Row row;
    if (!(words >> row.address >> row.arch >> row.reached >> std::ws) ||
        !std::getline(words, row.name)) {
      throw ConfigError(cat("SHALE_MACHINE: ", file, ", line ", rows.size() + 1, ": '",
                            excerpt(line), "', expected ADDRESS CAPABILITY PEERS NAME, as in ",
                            "'0000:17:00.0 89 0,1 NVIDIA GeForce RTX 4090'; PEERS: the GPUs whose ",
                            "memory this GPU can access, or -"));
    }
    rows.push_back(std::move(row));
  }
  if (rows.empty()) throw ConfigError(cat("SHALE_MACHINE: ", file, " lists no GPU"));
  return rows;
}

}  // namespace

std::vector<PciPlace> GpuMachine::places() const {
  std::vector<PciPlace> places;
  for (const MachineGpu& gpu : gpus) places.push_back(gpu.place);
  return places;
}

GpuMachine read_gpu_machine(const std::string& folder) {
  const std::vector<Row> rows = read_rows(cat(folder, "/", "gpus"));
  GpuMachine machine;
  for (const Row& row : rows) {
    const auto arch = parse_int(row.arch);
    const std::vector<int> reached = parse_cpu_list(row.reached);
    const bool known = std::all_of(reached.begin(), reached.end(),
                                   [&](int gpu) { return static_cast<size_t>(gpu) < rows.size(); });
    if (!arch || *arch < 10 || *arch > 999 || !known || (reached.empty() && row.reached != "-")) {
      throw ConfigError(cat("SHALE_MACHINE: GPU ", machine.gpus.size(), ": capability '",
                            excerpt(row.arch), "' and peers '", excerpt(row.reached),
                            "'; expected a capability such as 89, and peers such as 0,1 (GPU ",
                            "numbers below ", rows.size(), ") or -"));
    }
    MachineGpu gpu{.place = read_pci_place(row.address, cat(folder, "/", "sys")),
                   .arch = static_cast<int>(*arch),
                   .name = row.name,
                   .reaches = std::vector<bool>(rows.size(), false)};
    for (const int other : reached) gpu.reaches[static_cast<size_t>(other)] = true;
    machine.gpus.push_back(std::move(gpu));
  }
  return machine;
}

std::optional<GpuMachine> simulated_machine() {
  const char* const folder = std::getenv("SHALE_MACHINE");
  if (folder == nullptr || *folder == '\0') return std::nullopt;
  return read_gpu_machine(folder);
}

}  // namespace shale

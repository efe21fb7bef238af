#include "shale/bench/support/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <fstream>

#include "shale/base/text.h"
#include "shale/bench/support/peaks.h"
#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

// Returns the value of the first line "key   : value" in a file such as /proc/cpuinfo.
std::string field_of(const char* path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    const size_t start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "unknown";
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

std::string system_name() {
  utsname name{};
  if (uname(&name) != 0) return "unknown";
  return cat(std::string_view(name.sysname), ' ', std::string_view(name.release));
}

std::string compiler_name() {
#if defined(__clang__)
  return cat("Clang ", __clang_version__);
#else
  return cat("GCC ", __VERSION__);
#endif
}

}  // namespace

Machine describe_machine() {
  Machine machine{.cpu = field_of("/proc/cpuinfo", "model name"),
                  .cores = int(sysconf(_SC_NPROCESSORS_ONLN)),
                  .memory_bytes = int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE),
                  .cache_bytes = last_level_cache_bytes(),
                  .system = system_name(),
                  .compiler = compiler_name(),
                  .date = now_utc()};
  if (const char* cudnn = std::getenv("SHALE_CUDNN")) machine.cudnn = cudnn;
  double load = 0;
  if (getloadavg(&load, 1) == 1) machine.load = load;
  return machine;
}

JsonText machine_json(const Machine& machine) {
  JsonText json;
  json.add("cpu", machine.cpu).add("cores", machine.cores);
  json.add("memory_bytes", machine.memory_bytes).add("cache_bytes", machine.cache_bytes);
  if (!machine.gpu.empty()) json.add("gpu", machine.gpu).add("cuda", machine.cuda);
  json.add("system", machine.system).add("compiler", machine.compiler);
  if (!machine.onednn.empty()) json.add("onednn", machine.onednn);
  if (!machine.cudnn.empty()) json.add("cudnn", machine.cudnn);
  return json.add("date", machine.date).add("load", machine.load);
}

std::string summary(const Machine& machine) {
  std::string text =
      cat(machine.cpu, ", ", machine.cores, " CPUs, ", format_bytes(double(machine.memory_bytes)));
  if (!machine.gpu.empty()) text += cat(", ", machine.gpu, ", CUDA ", machine.cuda);
  if (!machine.onednn.empty()) text += ", oneDNN " + machine.onednn;
  return cat(text, ", load ", fixed(machine.load, 1));
}

}  // namespace shale::bench

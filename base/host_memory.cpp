#include "shale/base/host_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/base/text.h"

namespace shale {
namespace {

// Smallest request that is checked. Reading /proc and /sys would take too long for smaller ones.
constexpr int64_t kLeastChecked = 64 << 20;

// Returns the number at the beginning of the file or, with `key`, the number after that key.
std::optional<int64_t> number_in(const std::string& path, std::string_view key = "") {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    std::string_view rest = std::string_view(line).substr(key.size());
    rest.remove_prefix(std::min(rest.find_first_not_of(": \t"), rest.size()));
    return parse_int(rest.substr(0, rest.find(' ')));
  }
  return std::nullopt;
}

// Names of a control group's memory files, in cgroup version 2 and version 1.
struct GroupFiles {
  std::string_view controller, limit, usage, inactive, events;
};
constexpr GroupFiles kGroupFiles[] = {
    {"", "memory.max", "memory.current", "inactive_file", "memory.events"},
    {"memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file",
     "memory.oom_control"}};

std::optional<int64_t> limit_of(const std::string& folder, const GroupFiles& files) {
  constexpr int64_t kNoLimit = int64_t{1} << 60;  // cgroup version 1 reports 2^63 for no limit
  const auto limit = number_in(cat(folder, "/", files.limit));
  return limit && *limit < kNoLimit ? limit : std::nullopt;
}

void take_smaller(std::optional<int64_t>& smallest, int64_t value) {
  smallest = std::min(smallest.value_or(value), value);
}

// Returns the bytes of this process that are in memory now.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t mapped = 0, resident = 0;
  file >> mapped >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

}  // namespace

int64_t meminfo_bytes(std::string_view key) {
  return number_in("/proc/meminfo", key).value_or(0) * 1024;
}

std::vector<std::string> cgroup_folders(std::string_view controller) {
  std::ifstream file("/proc/self/cgroup");
  std::string line, path;
  bool found = false;
  while (!found && std::getline(file, line)) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    found = controller.empty()
                ? controllers.empty()
                : cat(",", controllers, ",").find(cat(",", controller, ",")) != std::string::npos;
    path = line.substr(second + 1);
  }
  if (!found) return {};
  const std::string root =
      controller.empty() ? "/sys/fs/cgroup" : cat("/sys/fs/cgroup/", controller);
  std::vector<std::string> folders;
  for (; path.size() > 1; path.erase(path.rfind('/'))) folders.push_back(root + path);
  folders.push_back(root);
  return folders;
}

std::optional<int64_t> cgroup_memory_limit() {
  std::optional<int64_t> smallest;
  for (const GroupFiles& files : kGroupFiles) {
    for (const std::string& folder : cgroup_folders(files.controller)) {
      if (const auto limit = limit_of(folder, files)) take_smaller(smallest, *limit);
    }
  }
  return smallest;
}

int64_t oom_kills() {
  int64_t kills = 0;
  for (const GroupFiles& files : kGroupFiles) {
    for (const std::string& folder : cgroup_folders(files.controller)) {
      kills += number_in(cat(folder, "/", files.events), "oom_kill ").value_or(0);
    }
  }
  return kills;
}

std::optional<int64_t> available_host_memory() {
  std::optional<int64_t> smallest;
  if (const auto kib = number_in("/proc/meminfo", "MemAvailable")) smallest = *kib * 1024;
  for (const GroupFiles& files : kGroupFiles) {
    for (const std::string& folder : cgroup_folders(files.controller)) {
      const auto limit = limit_of(folder, files);
      if (!limit) continue;
      // A group's usage includes cached file pages, which the kernel drops when memory is needed.
      const int64_t used = number_in(cat(folder, "/", files.usage)).value_or(0) -
                           number_in(cat(folder, "/memory.stat"), files.inactive).value_or(0);
      take_smaller(smallest, std::max<int64_t>(*limit - used, 0));
    }
  }
  return smallest;
}

void require_host_memory(int64_t bytes, int64_t mapped) {
  if (bytes < kLeastChecked) return;
  const int64_t unused = std::max<int64_t>(mapped - resident_bytes(), 0);
  const auto available = available_host_memory();
  if (!available || bytes + unused <= *available) return;
  throw OutOfMemoryError(
      cat("memory: ", format_bytes(double(bytes)), " more do not fit into host memory: only ",
          format_bytes(double(std::max<int64_t>(*available - unused, 0))), " are available"));
}

}  // namespace shale

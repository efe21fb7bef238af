// Examines processors, memory, limits and disks, for shale doctor.
#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>

#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/host_memory.h"
#include "shale/base/parse.h"
#include "shale/models/tools/doctor.h"
#include "shale/models/training/checks/disk_room.h"

namespace shale::models::doctor {
namespace {

std::string size(int64_t bytes) {
  return format_bytes(static_cast<double>(bytes));
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// Returns the value of "key" in a file such as /proc/cpuinfo.
std::string proc_field(const char* path, std::string_view key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with(key)) continue;
    const size_t start = line.find_first_not_of(" \t:", key.size());
    return start == line.npos ? "" : line.substr(start);
  }
  return "";
}

// Returns the CPU quota of the control groups, as a number of CPUs; nothing if unlimited.
std::optional<double> cgroup_cpus() {
  std::optional<double> smallest;
  const auto consider = [&](double quota, double period) {
    if (quota <= 0 || period <= 0) return;
    if (!smallest || quota / period < *smallest) smallest = quota / period;
  };
  for (const auto& folder : cgroup_folders("")) {
    std::istringstream line(first_line(folder + "/cpu.max"));
    double quota = 0, period = 0;
    if (line >> quota >> period) consider(quota, period);
  }
  for (const auto& folder : cgroup_folders("cpu")) {
    const auto quota = parse_real(first_line(folder + "/cpu.cfs_quota_us"));
    const auto period = parse_real(first_line(folder + "/cpu.cfs_period_us"));
    if (quota && period) consider(*quota, *period);
  }
  return smallest;
}

std::string limit_text(rlim_t limit, bool in_bytes) {
  if (limit == RLIM_INFINITY) return "unlimited";
  return in_bytes ? size(static_cast<int64_t>(limit)) : cat(static_cast<int64_t>(limit));
}

rlim_t soft_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return RLIM_INFINITY;
  return limit.rlim_cur;
}

bool has_entries(const char* folder) {
  DIR* const listing = opendir(folder);
  if (listing == nullptr) return false;
  bool any = false;
  while (const dirent* entry = readdir(listing)) any = any || entry->d_name[0] != '.';
  closedir(listing);
  return any;
}

void examine_instructions(Findings& findings) {
  Finding finding{.section = "CPU", .name = "instructions"};
#if defined(__x86_64__)
  const std::string flags = cat(" ", proc_field("/proc/cpuinfo", "flags"), " ");
  const auto has = [&](const char* flag) { return flags.find(cat(" ", flag, " ")) != flags.npos; };
  if (has("avx512f") && has("avx512bw") && has("avx512vl")) {
    finding.value = cat("AVX-512", has("avx512_bf16") ? " with bf16" : ", without bf16",
                        has("amx_bf16") ? ", AMX" : "");
  } else if (has("avx2")) {
    finding.value = "AVX2: half the speed of AVX-512; bf16 is converted to fp32";
  } else if (has("sse4_1")) {
    finding.value = "SSE4 only: a quarter of the speed of AVX2";
    finding.state = State::kWarning;
    finding.fix = "in a virtual machine, pass the host's CPU model through";
  } else {
    finding.value = "no SSE4, which the kernels need";
    finding.state = State::kFailed;
    finding.fix = "use another machine, or pass the host's CPU model through";
  }
#else
  finding.value = "not x86: portable kernels, untuned";
  finding.state = State::kWarning;
  finding.fix = "use an x86-64 machine for speed";
#endif
  findings.push_back(finding);
}

void examine_limits(Findings& findings) {
  const auto add = [&](const char* name, rlim_t limit, bool in_bytes, rlim_t wanted,
                       const char* fix) {
    const bool enough = limit >= wanted;  // true for RLIM_INFINITY, the largest value
    findings.push_back({.section = "Memory and limits",
                        .name = name,
                        .state = enough ? State::kOk : State::kWarning,
                        .value = limit_text(limit, in_bytes),
                        .fix = enough ? "" : fix});
  };
  // A rank has an open file for every shared buffer that it made.
  add("ulimit -n", soft_limit(RLIMIT_NOFILE), false, 1024,
      "ulimit -n 65536: each buffer that ranks share is an open file");
  add("ulimit -s", soft_limit(RLIMIT_STACK), true, 1 << 20,
      "ulimit -s 8192: threads get stacks of this size");
  // Only RDMA network cards need locked pages.
  const bool infiniband = has_entries("/sys/class/infiniband");
  add("ulimit -l", soft_limit(RLIMIT_MEMLOCK), true, infiniband ? RLIM_INFINITY : 0,
      "ulimit -l unlimited (/etc/security/limits.conf, memlock): InfiniBand locks its buffers");
  add("ulimit -c", soft_limit(RLIMIT_CORE), true, 0, "");
}

void examine_folder(Findings& findings, const MpiFolder& folder, int64_t wanted_bytes) {
  Finding finding{.section = "Disks", .name = folder.name};
  const auto room = disk_room(folder.path);
  if (!room || access(folder.path.c_str(), W_OK | X_OK) != 0) {
    finding.state = State::kFailed;
    finding.value = cat(folder.path, ": ", std::strerror(errno));
    finding.fix = folder.if_unusable;
  } else {
    finding.value =
        cat(folder.path, ": ", size(room->free_bytes), " free of ", size(room->total_bytes));
    if (room->free_bytes < wanted_bytes || !room->can_add_files) {
      finding.state = State::kWarning;
      finding.fix = folder.if_full;
    }
  }
  findings.push_back(finding);
}

constexpr std::string_view kSegment = "vader_segment.";

// Returns Open MPI's shared-memory segments that processes have mapped.
std::set<std::string> segments_in_use() {
  std::set<std::string> used;
  std::error_code gone;
  for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
    if (!parse_int(process.path().filename().string())) continue;
    std::ifstream maps(process.path() / "maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t at = line.find(kSegment);
      if (at != line.npos) used.insert(line.substr(at));
    }
  }
  return used;
}

// Finds segments left by ranks that were killed together with their mpirun.
void examine_leftovers(Findings& findings) {
  const std::string folder = mpi_folders().back().path;
  const std::set<std::string> used = segments_in_use();
  int64_t count = 0, bytes = 0;
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(folder, gone)) {
    const std::string name = entry.path().filename().string();
    struct stat info {};
    if (!name.starts_with(kSegment) || used.contains(name)) continue;
    if (stat(entry.path().c_str(), &info) != 0 || info.st_uid != getuid()) continue;
    ++count;
    bytes += int64_t{info.st_blocks} * 512;
  }
  if (count == 0) return;
  findings.push_back({.section = "Disks",
                      .name = "left by MPI",
                      .state = State::kWarning,
                      .value = cat(count, " segments, ", size(bytes), ", that no process uses"),
                      .fix = cat("while no mpirun is starting: rm ", folder, "/", kSegment, "*")});
}

}  // namespace

void examine_cpu(Findings& findings) {
  const CpuCounts cpus = cpu_counts();
  const std::string model = proc_field("/proc/cpuinfo", "model name");
  findings.push_back({.section = "CPU",
                      .name = "model",
                      .value = cat(model.empty() ? "unknown" : model, ", ",
                                   sysconf(_SC_NPROCESSORS_ONLN), " CPUs")});
  examine_instructions(findings);
  Finding cores{.section = "CPU",
                .name = "cores to use",
                .value = cat(cpus.bound, " of ", cpus.node, " in the affinity mask")};
  if (cpus.bound < cpus.node) {
    cores.state = State::kWarning;
    cores.fix = "use mpirun --bind-to none; for a single rank, use taskset or --threads";
  }
  findings.push_back(cores);
  if (const auto granted = cgroup_cpus(); granted && *granted < cpus.bound) {
    findings.push_back({.section = "CPU",
                        .name = "CPU quota",
                        .state = State::kWarning,
                        .value = cat("the container gets ", *granted, " CPUs' worth of time"),
                        .fix = "keep ranks x --threads at or below it, or ranks are throttled"});
  }
}

void examine_memory(Findings& findings) {
  const int64_t available = available_host_memory().value_or(0);
  Finding memory{.section = "Memory and limits",
                 .name = "memory",
                 .value = cat(size(available), " available of ", size(meminfo_bytes("MemTotal")))};
  constexpr int64_t kLittle = int64_t{1} << 30, kTooLittle = 128 << 20;
  if (const auto limit = cgroup_memory_limit()) {
    memory.value += cat(", at most ", size(*limit), " for this control group");
  }
  if (available < kLittle) {
    memory.state = available < kTooLittle ? State::kFailed : State::kWarning;
    memory.fix = "end other programs, or raise the container's memory limit";
  }
  findings.push_back(memory);
  examine_limits(findings);
}

void examine_disks(Findings& findings) {
  const int64_t wanted_bytes = room_for_mpi(cpu_counts().node);
  for (const MpiFolder& folder : mpi_folders()) examine_folder(findings, folder, wanted_bytes);
  examine_leftovers(findings);
}

}  // namespace shale::models::doctor

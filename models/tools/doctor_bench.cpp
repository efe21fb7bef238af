// Measurements of shale doctor: memory, GEMMs, a disk, and the connections of ranks by axis.
#include <omp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <limits>
#include <set>
#include <thread>
#include <vector>

#include "shale/base/clock.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/base/text.h"
#include "shale/comm/mesh.h"
#include "shale/comm/world.h"
#include "shale/models/tools/doctor.h"
#include "shale/models/tools/supervision/child_process.h"
#include "shale/models/training/checks/gemm_peak.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/device_backend.h"
#include "shale/runtime/tensor/tensor.h"

namespace shale::models::doctor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kSection = "Measured";
// Number of runs; the fastest counts, because other load can only slow a run down.
constexpr int kRuns = 5;

// Bytes of GPT-2 124M with AdamW, an example with which the output explains the measured rates.
constexpr double kGradientBytes = 124e6 * 4, kCheckpointBytes = 124e6 * 12;

double seconds_of(const std::function<void()>& run) {
  const auto start = Clock::now();
  run();
  return std::max(1e-9, seconds_since(start));
}

double fastest(const std::function<void()>& run) {
  double best = std::numeric_limits<double>::infinity();
  for (int i = 0; i < kRuns; ++i) best = std::min(best, seconds_of(run));
  return best;
}

// Rounds to three digits, or to an integer.
std::string rounded(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(),
                value < 10    ? "%.2f"
                : value < 100 ? "%.1f"
                              : "%.0f",
                value);
  return text.data();
}

std::string rate(double bytes_per_s) {
  return cat(format_bytes(bytes_per_s), "/s");
}

std::string duration(double seconds) {
  return seconds < 1e-3 ? cat(rounded(seconds * 1e6), " us")
         : seconds < 1  ? cat(rounded(seconds * 1e3), " ms")
                        : cat(rounded(seconds), " s");
}

// Adds a finding with the advice `fix`; empty: all is well.
void add(Findings& findings, std::string name, std::string value, std::string fix) {
  findings.push_back({.section = kSection,
                      .name = std::move(name),
                      .state = fix.empty() ? State::kOk : State::kWarning,
                      .value = std::move(value),
                      .fix = std::move(fix)});
}

// ---- Memory and GEMMs of the host ----

// Returns the bytes per second that `threads` threads read and write together when each copies its
// own memory.
double copy_bytes_per_s(int threads) {
  constexpr size_t kBytes = 64 << 20;  // larger than caches
  std::vector<std::vector<std::byte>> memory(2 * static_cast<size_t>(threads));
  std::vector<std::thread> makers;
  for (auto& part : memory) {
    makers.emplace_back([&part] { part.assign(kBytes, std::byte{1}); });
  }
  for (auto& maker : makers) maker.join();
  const double seconds = fastest([&] {
    std::vector<std::thread> copiers;
    for (size_t i = 0; i < memory.size(); i += 2) {
      copiers.emplace_back([&, i] { std::memcpy(memory[i].data(), memory[i + 1].data(), kBytes); });
    }
    for (auto& copier : copiers) copier.join();
  });
  return 2.0 * static_cast<double>(kBytes) * threads / seconds;
}

void measure_memory(Findings& findings, int cores) {
  constexpr double kLeast = 4e9;
  const double all = copy_bytes_per_s(cores), one = cores == 1 ? all : copy_bytes_per_s(1);
  std::string fix;
  if (all < kLeast * std::min(cores, 4)) {
    fix = "end other programs that use memory, or populate all memory channels";
  } else if (cores >= 4 && all < 1.2 * one) {
    fix = "use fewer ranks or threads: one core already uses the whole bandwidth";
  }
  add(findings, "memory",
      cat(rate(all), " read and written by ", cores, " cores, ", rate(one), " by one"), fix);
}

double products_per_s(int threads, DType dtype) {
  omp_set_num_threads(threads);
  Context context({.threads = threads});
  return measure_gemm_peak(context, dtype);
}

void measure_products(Findings& findings, int cores) {
  constexpr double kShared = 0.5, kSlower = 0.8;
  const double one = products_per_s(1, DType::kF32);
  const double all = cores == 1 ? one : products_per_s(cores, DType::kF32);
  const double half = products_per_s(cores, DType::kBF16);
  const auto flops = [](double value) { return cat(rounded(value / 1e9), " GFLOP/s"); };
  add(findings, "GEMM fp32", cat(flops(all), " by ", cores, " cores, ", flops(one), " by one"),
      all < kShared * one * cores
          ? "use fewer ranks x --threads: hyper-threads, a quota or other programs share cores"
          : "");
  add(findings, "GEMM bf16", cat(flops(half), ", ", rounded(half / all), " times fp32's"),
      half < kSlower * all ? "use --dtype fp32 here: bf16 is slower on this CPU" : "");
}

// ---- Disks ----

void measure_disk(Findings& findings, const std::string& path) {
  constexpr int64_t kBytes = 256 << 20, kPart = 8 << 20;
  constexpr double kSlow = 100e6;
  const std::string name = cat(".shale-doctor-", getpid());
  const std::filesystem::path whole = std::filesystem::path(path) / name;
  double write_s = 0, read_s = 0;
  try {
    const Folder folder = Folder::open(path);
    const DirectMemory memory = allocate_direct_memory(kPart);
    std::memset(memory.get(), 0x5a, kPart);  // not zeros, which a disk may store without writing
    const std::span<std::byte> part(memory.get(), kPart);
    File file = File::create(folder, name);
    file.bypass_cache(true);
    write_s = seconds_of([&] {
      for (int64_t at = 0; at < kBytes; at += kPart) file.write_at(at, part);
      file.sync();
    });
    file.close();
    File again = File::open(folder, name);
    again.bypass_cache(true);
    read_s = seconds_of([&] {
      for (int64_t at = 0; at < kBytes; at += kPart) again.read_at(at, part);
    });
  } catch (const Error& error) {
    add(findings, "disk", error.what(), "use --folder to measure another disk");
  }
  std::error_code gone;
  std::filesystem::remove(whole, gone);
  if (read_s == 0) return;
  const double written = kBytes / write_s;
  add(findings, "disk",
      cat(path, ": ", rate(written), " written, ", rate(kBytes / read_s), " read; a checkpoint of ",
          "GPT-2 124M takes ", duration(kCheckpointBytes / written)),
      written < kSlow ? "put --out on another disk, or save less often with --save-minutes" : "");
}

// ---- GPUs ----

struct GpuSpeed {
  double copy_bytes_per_s = 0, upload_bytes_per_s = 0, flops = 0;
};

GpuSpeed measure_gpu(int index) {
  constexpr int64_t kBytes = 256 << 20;
  Context context({.device = {.type = DeviceType::kCuda, .index = index}});
  const auto from = context.allocate(kBytes, MemoryTag::kWorkspace);
  const auto to = context.allocate(kBytes, MemoryTag::kWorkspace);
  const auto time = [&](const void* source) {
    return fastest([&] {
      context.copy(to->data(), source, kBytes);
      context.synchronize();
    });
  };
  GpuSpeed speed{.copy_bytes_per_s = 2.0 * kBytes / time(from->data())};
  MemoryProvider& pinned = context.backend().host_memory();
  void* const host = pinned.allocate(kBytes);
  speed.upload_bytes_per_s = kBytes / time(host);
  pinned.free(host, kBytes);
  speed.flops = measure_gemm_peak(context, DType::kBF16);
  return speed;
}

void measure_gpus(Findings& findings) {
  constexpr double kAlike = 0.9;
  std::vector<GpuSpeed> speeds;
  try {
    while (true) speeds.push_back(measure_gpu(static_cast<int>(speeds.size())));
  } catch (const Error&) {
    // There are no more GPUs, or the build does not support them; examine_gpus() reports that.
  }
  GpuSpeed best;
  for (const GpuSpeed& speed : speeds) {
    best.copy_bytes_per_s = std::max(best.copy_bytes_per_s, speed.copy_bytes_per_s);
    best.upload_bytes_per_s = std::max(best.upload_bytes_per_s, speed.upload_bytes_per_s);
    best.flops = std::max(best.flops, speed.flops);
  }
  for (size_t i = 0; i < speeds.size(); ++i) {
    const GpuSpeed& speed = speeds[i];
    const bool is_slower = speed.copy_bytes_per_s < kAlike * best.copy_bytes_per_s ||
                           speed.upload_bytes_per_s < kAlike * best.upload_bytes_per_s ||
                           speed.flops < kAlike * best.flops;
    add(findings, cat("cuda:", i),
        cat(rounded(speed.flops / 1e12), " TFLOP/s in bf16 GEMMs; memory ",
            rate(speed.copy_bytes_per_s), "; from the host ", rate(speed.upload_bytes_per_s)),
        is_slower ? "slower than another GPU here, so all others wait for it; run nvidia-smi -q -d "
                    "PERFORMANCE to see why"
                  : "");
  }
}

// ---- Ranks, by axis ----

// Speed of an axis; rank 0 prints it as a line of JSON.
struct AxisSpeed {
  std::string axis;
  int ranks = 0;
  bool leaves_host = false;
  double latency_s = 0, bytes_per_s = 0;  // 8-byte latency; ring bandwidth per rank
};

// Measures an axis. If it has several groups, the slowest group counts. Collective over `world`.
AxisSpeed measure_axis(comm::Mesh& mesh, const std::string& axis) {
  constexpr int64_t kSmall = 8, kLarge = 16 << 20;
  comm::ProcessGroup& group = mesh.group(axis);
  std::vector<float> values(kLarge / sizeof(float), 0);
  const auto time = [&](int64_t bytes, int repeats) {
    const View view = make_view(values.data(), {bytes / int64_t{sizeof(float)}});
    double best = std::numeric_limits<double>::infinity();
    for (int run = 0; run < kRuns; ++run) {
      mesh.all().barrier("doctor");
      best = std::min(best, seconds_of([&] {
                              for (int i = 0; i < repeats; ++i) group.all_reduce_sum(view);
                            }) / repeats);
    }
    return best;
  };
  const double times[] = {time(kSmall, 100), time(kLarge, 1)};
  int64_t slowest_ns[] = {static_cast<int64_t>(times[0] * 1e9),
                          static_cast<int64_t>(times[1] * 1e9)};
  mesh.all().all_reduce_max(make_view(slowest_ns, {2}));
  const double sent = 2.0 * (group.size() - 1) / group.size() * kLarge;
  return {.axis = axis,
          .ranks = group.size(),
          .latency_s = static_cast<double>(slowest_ns[0]) * 1e-9,
          .bytes_per_s = sent / (static_cast<double>(std::max<int64_t>(slowest_ns[1], 1)) * 1e-9)};
}

bool on_several_hosts(comm::ProcessGroup& group) {
  const auto names = group.all_gather_bytes(host_identity(), "doctor");
  return std::set<std::string>(names.begin(), names.end()).size() > 1;
}

void judge_axis(Findings& findings, const AxisSpeed& speed, bool crowded) {
  constexpr double kSlowOnHost_s = 100e-6, kSlowBetween_s = 200e-6;
  constexpr double kNarrowOnHost = 1e9, kNarrowBetween = 1e9;
  const double slow_s = speed.leaves_host ? kSlowBetween_s : kSlowOnHost_s;
  const double narrow = speed.leaves_host ? kNarrowBetween : kNarrowOnHost;
  std::string fix;
  if (speed.latency_s > slow_s || speed.bytes_per_s < narrow) {
    fix = crowded ? "start fewer ranks, so that each has its own cores"
          : speed.leaves_host
              ? "use a faster network, or choose its interface with --mca btl_tcp_if_include; keep "
                "axes with much traffic inside hosts"
              : "use --bind-to none and end other programs, because ranks wait for cores";
  }
  add(findings, cat("axis ", speed.axis),
      cat(speed.ranks, " ranks", speed.leaves_host ? " on several hosts" : "",
          ": all-reduce of 8 B ", duration(speed.latency_s), ", of 16 MiB ",
          rate(speed.bytes_per_s), " per rank; ", "gradients of GPT-2 124M take ",
          duration(2 * kGradientBytes / speed.bytes_per_s)),
      fix);
}

void measure_axes(Findings& findings, const BenchOptions& options) {
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::vector<std::string> command = {"mpirun", "--oversubscribe", "--bind-to", "none"};
  if (!options.hostfile.empty()) {
    command.insert(command.end(), {"--hostfile", options.hostfile});
  }
  command.insert(command.end(), {"-np", cat(options.ranks), self, "doctor", kAsBenchRank,
                                 cat(options.pipeline), cat(options.context), cat(options.tensor)});
  const ChildResult child = run_command(
      command, /*timeout_s=*/120, {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  if (child.code != 0) {
    constexpr std::string_view kError = "error: ";
    const size_t at = child.output.find(kError);
    findings.push_back(
        {.section = kSection,
         .name = "ranks",
         .state = State::kWarning,
         .value = at == std::string::npos
                      ? cat("did not run: exit code ", child.code)
                      : child.output.substr(at + kError.size(),
                                            child.output.find('\n', at) - at - kError.size()),
         .fix = "run shale doctor without --bench to see whether mpirun can start ranks"});
    return;
  }
  size_t axes = 0;
  for (size_t at = 0, end = 0; (end = child.output.find('\n', at)) != std::string::npos;
       at = end + 1) {
    const std::string text = child.output.substr(at, end - at);
    if (!text.starts_with("{")) continue;  // skips output of MPI
    const Json line = Json::parse(text, {}, "an axis");
    ++axes;
    judge_axis(findings,
               {.axis = line["axis"].text(),
                .ranks = line["ranks"].get<int>(),
                .leaves_host = line["leaves_host"].boolean(),
                .latency_s = line["latency_s"].real(),
                .bytes_per_s = line["bytes_per_s"].real()},
               options.hostfile.empty() && options.ranks > cpu_counts().bound);
  }
  if (axes == 0) add(findings, "ranks", "no axis is longer than one rank", "use --ranks 2 or more");
}

}  // namespace

void measure(Findings& findings, const BenchOptions& options) {
  const int cores = cpu_counts().bound;
  measure_memory(findings, cores);
  measure_products(findings, cores);
  measure_gpus(findings);
  measure_disk(findings, options.folder);
  measure_axes(findings, options);
}

int run_as_bench_rank(const comm::ParallelSizes& sizes) {
  std::string name = "shale";
  std::array<char*, 2> arguments = {name.data(), nullptr};
  return comm::run(1, arguments.data(), [&](comm::World& world) {
    const auto group = world.group({.timeout_s = 60});
    comm::Mesh mesh(*group, comm::parallel_axes(sizes, world.size()));
    for (const comm::MeshAxis& axis : mesh.layout().axes()) {
      if (mesh.size(axis.name) == 1) continue;
      AxisSpeed speed = measure_axis(mesh, axis.name);
      speed.leaves_host = on_several_hosts(mesh.group(axis.name));
      if (world.rank() != 0) continue;
      const Json line = {{"axis", speed.axis},
                         {"ranks", speed.ranks},
                         {"leaves_host", speed.leaves_host},
                         {"latency_s", speed.latency_s},
                         {"bytes_per_s", speed.bytes_per_s}};
      std::printf("%s\n", line.dump().c_str());
    }
    return 0;
  });
}

}  // namespace shale::models::doctor

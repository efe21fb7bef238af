// Compares collectives of a process group with equivalent MPI calls in one run:
// mpirun -np 2 --bind-to none bench_collectives
// With --axes, measures the collectives of every axis of a mesh instead, on all groups of the axis
// at the same time, and fits the link parameters for plans.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/view.h"
#include "shale/bench/support/buffer.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/results.h"
#include "shale/bench/support/table.h"
#include "shale/bench/support/timing.h"
#include "shale/comm/mesh.h"
#include "shale/comm/world.h"
#include "shale/models/plan/time/cluster.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::bench {
namespace {

using comm::ProcessGroup;
using comm::World;

struct BenchConfig {
  std::string op = "all";
  int64_t min_bytes = 4 << 10;
  int64_t max_bytes = 0;
  bool axes = false;
  comm::ParallelSizes sizes;
  std::string cluster, cluster_out;
  int repeats = 0;
  int threads = 1;
  std::string json;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add_choice("op", c.op,
                  {"all", "all_reduce_sum", "reduce_scatter_sum", "all_gather", "broadcast",
                   "reduce_sum", "gather", "all_to_all"},
                  "collective to measure");
  spec.add_size("min-bytes", c.min_bytes, "smallest message", {.min = 64, .max = 1 << 30});
  spec.add_size("max-bytes", c.max_bytes, "size of the largest message; sizes grow fourfold",
                {.min = 64, .max = 1 << 30, .help = {.default_text = "64MiB; 256MiB with --axes"}});
  spec.add("repeats", c.repeats,
           "repetitions of each measurement; the collectives are measured alternately",
           {.min = 1, .help = {.default_text = "by size: 5 to 300"}});
  spec.add("threads", c.threads, "CPU threads of a reduction", {.min = 1, .max = 256});
  spec.add("json", c.json, "JSON results file", {.is_path = true, .help = {.metavar = "FILE"}});
  spec.section("Axes");
  spec.add("axes", c.axes,
           "measure the collectives along each axis of a mesh, in all groups at once, and fit "
           "latency and bandwidth of the links");
  const auto size = [&](const char* name, int& ranks, const char* help) {
    spec.add(name, ranks, help, {.min = 1, .max = 1 << 20});
  };
  size("replica", c.sizes.replica, "--axes: number of replicas");
  size("pipeline", c.sizes.pipeline,
       "--axes: number of pipeline stages; remaining ranks are the data-parallel axis");
  size("context", c.sizes.context, "--axes: ranks that share a sequence");
  size("tensor", c.sizes.tensor, "--axes: ranks that share a layer");
  spec.add("cluster", c.cluster, "--axes: cluster file, as for shale plan",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.add("cluster-out", c.cluster_out,
           "--axes: file to write: the --cluster file with the fitted links",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.example("mpirun -np 2 --bind-to none bench_collectives --json collectives.json");
  spec.example("mpirun -np 4 --oversubscribe bench_collectives --op all_gather --max-bytes 1MiB");
  spec.example(
      "mpirun -np 4 --oversubscribe bench_collectives --axes --tensor 2 "
      "--cluster deploy/clusters/cpu_host.json --cluster-out here.json");
}

// A collective and its size. `bytes` is the size of the whole buffer: each rank's buffer for
// all-reduce, broadcast and reduce, the input for reduce-scatter and all-to-all, the output for
// all-gather, the root's output for gather.
struct Case {
  std::string op;
  int64_t bytes = 0;
  int64_t count(int ranks) const { return bytes / 4 / ranks * ranks; }  // number of f32 elements
};

// Returns the minimum traffic on a rank's link, relative to the buffer. Multiplied by it, speeds on
// different numbers of ranks can be compared, as in nccl-tests.
double bus_factor(const std::string& op, int ranks) {
  const double n = ranks;
  if (op == "all_reduce_sum") return 2 * (n - 1) / n;
  if (op == "broadcast" || op == "reduce_sum") return 1;
  return (n - 1) / n;
}

struct Memory {
  float* whole = nullptr;
  float* other = nullptr;  // buffer as long as `whole`
  float* slice = nullptr;
};

void run_shale(ProcessGroup& group, const Case& test, const Memory& memory) {
  const int64_t count = test.count(group.size());
  const View whole = make_view(memory.whole, {count});
  const View slice = make_view(memory.slice, {count / group.size()});
  if (test.op == "all_reduce_sum") {
    group.all_reduce_sum(whole);
  } else if (test.op == "reduce_scatter_sum") {
    group.reduce_scatter_sum(whole, slice);
  } else if (test.op == "all_gather") {
    group.all_gather(slice, whole);
  } else if (test.op == "broadcast") {
    group.broadcast(whole, 0);
  } else if (test.op == "reduce_sum") {
    group.reduce_sum(whole, 0);
  } else if (test.op == "gather") {
    group.gather(slice, whole, 0);
  } else {
    group.all_to_all(whole, make_view(memory.other, {count}));
  }
}

void run_mpi(int ranks, const Case& test, const Memory& memory) {
  const int count = static_cast<int>(test.count(ranks));
  const MPI_Comm all = MPI_COMM_WORLD;
  if (test.op == "all_reduce_sum") {
    MPI_Allreduce(MPI_IN_PLACE, memory.whole, count, MPI_FLOAT, MPI_SUM, all);
  } else if (test.op == "reduce_scatter_sum") {
    MPI_Reduce_scatter_block(memory.whole, memory.slice, count / ranks, MPI_FLOAT, MPI_SUM, all);
  } else if (test.op == "all_gather") {
    MPI_Allgather(memory.slice, count / ranks, MPI_FLOAT, memory.whole, count / ranks, MPI_FLOAT,
                  all);
  } else if (test.op == "broadcast") {
    MPI_Bcast(memory.whole, count, MPI_FLOAT, 0, all);
  } else if (test.op == "reduce_sum") {
    MPI_Reduce(memory.whole, memory.other, count, MPI_FLOAT, MPI_SUM, 0, all);
  } else if (test.op == "gather") {
    MPI_Gather(memory.slice, count / ranks, MPI_FLOAT, memory.whole, count / ranks, MPI_FLOAT, 0,
               all);
  } else {
    MPI_Alltoall(memory.whole, count / ranks, MPI_FLOAT, memory.other, count / ranks, MPI_FLOAT,
                 all);
  }
}

// An implementation to compare: Shale on shared memory, Shale on other memory, or MPI.
struct Side {
  const char* impl;
  const char* memory_name;
  Memory memory;
  std::function<void(const Memory&)> run;
  Samples samples;
};

// Writes the buffers before every run, as backward does. Each owner writes its own buffer.
// Otherwise other cores would still have parts of it in their caches from the previous run.
void refill(const Memory& memory, int64_t count, int ranks) {
  std::fill_n(memory.whole, count, 1.f);
  std::fill_n(memory.slice, count / ranks, 1.f);
}

// Returns the seconds from the start of all ranks to the end of the last one.
double time_run(ProcessGroup& group, const Side& side, const Case& test) {
  refill(side.memory, test.count(group.size()), group.size());
  MPI_Barrier(MPI_COMM_WORLD);
  group.barrier();  // synchronizes the ranks more closely than MPI
  double seconds = time_once([&] { side.run(side.memory); });
  MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
  return seconds;
}

int repeats_of(const BenchConfig& config, int64_t bytes) {
  if (config.repeats > 0) return config.repeats;
  return static_cast<int>(std::clamp<int64_t>((192 << 20) / bytes, 5, 300));
}

std::vector<Side> measure(const BenchConfig& config, World& world, ProcessGroup& group,
                          const Case& test) {
  const int64_t count = test.count(world.size());
  const auto bytes = static_cast<size_t>(count) * 4;
  const size_t slice_bytes = bytes / static_cast<size_t>(world.size());
  std::vector<Buffer> own;
  for (int i = 0; i < 2; ++i) {
    own.emplace_back(bytes);
    own.emplace_back(bytes);
    own.emplace_back(slice_bytes);
  }
  const Memory shared{static_cast<float*>(group.memory().allocate(bytes)),
                      static_cast<float*>(group.memory().allocate(bytes)),
                      static_cast<float*>(group.memory().allocate(slice_bytes))};
  const auto on_shale = [&](const Memory& memory) { run_shale(group, test, memory); };
  const auto on_mpi = [&](const Memory& memory) { run_mpi(world.size(), test, memory); };
  const auto local = [&](size_t i) {
    return Memory{reinterpret_cast<float*>(own[i].data()),
                  reinterpret_cast<float*>(own[i + 1].data()),
                  reinterpret_cast<float*>(own[i + 2].data())};
  };
  std::vector<Side> sides = {{"shale", "group", shared, on_shale, {}},
                             {"shale", "any", local(0), on_shale, {}},
                             {"mpi_plain", "any", local(3), on_mpi, {}}};
  // The first run of each implementation maps memory, and does not count.
  for (int i = -1; i < repeats_of(config, test.bytes); ++i) {
    for (Side& side : sides) {
      const double seconds = time_run(group, side, test);
      if (i >= 0) side.samples.add(seconds);
    }
  }
  group.barrier();
  group.memory().free(shared.whole, bytes);
  group.memory().free(shared.other, bytes);
  group.memory().free(shared.slice, slice_bytes);
  return sides;
}

struct Results {
  Table table{{"collective", "bytes", "group us", "any us", "MPI us", "group GB/s", "bus GB/s",
               "MPI / group", "MPI / any"}};
  Json rows = Json::array();
};

void add_rows(Results& results, const Case& test, const std::vector<Side>& sides, int ranks) {
  const double bytes = static_cast<double>(test.count(ranks)) * 4;
  const Samples &shared = sides[0].samples, &any = sides[1].samples, &mpi = sides[2].samples;
  const double bandwidth = bytes / shared.min() / 1e9;
  results.table.add({test.op, format_bytes(static_cast<double>(test.bytes)),
                     short_number(shared.min() * 1e6), short_number(any.min() * 1e6),
                     short_number(mpi.min() * 1e6), fixed(bandwidth, 2),
                     fixed(bandwidth * bus_factor(test.op, ranks), 2),
                     fixed(mpi.min() / shared.min(), 2), fixed(mpi.min() / any.min(), 2)});
  for (const Side& side : sides) {
    results.rows.push_back({{"op", test.op},
                            {"impl", side.impl},
                            {"memory", side.memory_name},
                            {"ranks", ranks},
                            {"bytes", test.bytes},
                            {"time_ms", side.samples.min() * 1e3},
                            {"median_ms", side.samples.median() * 1e3},
                            {"repeats", side.samples.seconds.size()}});
  }
}

// ---- Axes of a mesh ----

// Returns the median over runs of the slowest rank's time. All groups of an axis run at the same
// time.
double group_seconds(const BenchConfig& config, ProcessGroup& group, ProcessGroup& all,
                     const Case& test) {
  const auto bytes = static_cast<size_t>(test.count(group.size())) * 4;
  const size_t slice_bytes = bytes / static_cast<size_t>(group.size());
  const Memory memory{static_cast<float*>(group.memory().allocate(bytes)),
                      static_cast<float*>(group.memory().allocate(bytes)),
                      static_cast<float*>(group.memory().allocate(slice_bytes))};
  Samples samples;
  for (int i = -1; i < repeats_of(config, test.bytes); ++i) {
    refill(memory, test.count(group.size()), group.size());
    all.barrier();
    double seconds = time_once([&] { run_shale(group, test, memory); });
    all.all_reduce_max(make_view(&seconds, {1}), {.tag = "bench"});
    if (i >= 0) samples.add(seconds);
  }
  all.barrier();
  group.memory().free(memory.whole, bytes);
  group.memory().free(memory.other, bytes);
  group.memory().free(memory.slice, slice_bytes);
  return samples.median();
}

std::vector<models::FittedLink> fit_axes(const BenchConfig& config, comm::Mesh& mesh,
                                         Table& table) {
  std::vector<models::FittedLink> links;
  for (const comm::MeshAxis& axis : mesh.layout().axes()) {
    if (axis.size == 1) continue;
    ProcessGroup& group = mesh.group(axis.name);
    const std::vector<int> members = mesh.layout().peers({axis.name}, mesh.all().rank());
    for (const comm::CollectiveOp op : models::fitted_ops()) {
      const std::string name(comm::op_name(op));
      if (config.op != "all" && config.op != name) continue;
      std::vector<models::MeasuredTime> times;
      for (int64_t bytes = config.min_bytes; bytes <= config.max_bytes; bytes *= 4) {
        const Case test{.op = name, .bytes = bytes};
        times.push_back({.bytes = double(test.count(group.size())) * 4,
                         .seconds = group_seconds(config, group, mesh.all(), test)});
      }
      models::FittedLink link{
          .axis = axis.name, .op = op, .ranks = axis.size, .stride = members[1] - members[0]};
      const double worst = models::fit(link, times);
      table.add({cat(axis.name, " ", axis.size), name, short_number(link.latency_s * 1e6),
                 fixed(link.bandwidth / 1e9, 2), percent(worst)});
      links.push_back(link);
    }
  }
  return links;
}

int run_axes(World& world, const BenchConfig& config) {
  const auto all = world.group({.threads = config.threads});
  comm::Mesh mesh(*all, comm::parallel_axes(config.sizes, world.size()));
  Table table({"axis, ranks", "collective", "latency us", "GB/s of the buffer", "worst error"});
  const std::vector<models::FittedLink> links = fit_axes(config, mesh, table);
  if (world.rank() != 0) return 0;
  std::printf("%d ranks on %s\nmedian of the slowest rank; fp32; all groups of an axis at once\n%s",
              world.size(), summary(describe_machine()).c_str(), table.text().c_str());
  if (config.cluster_out.empty()) return 0;
  static_cast<void>(models::read_cluster(config.cluster));  // throws if the file is invalid
  Json cluster = Json::parse(MappedFile(config.cluster).text(), {}, config.cluster);
  cluster["links"] = models::to_json(links);
  write_file_atomically(config.cluster_out, cluster.dump(2) + "\n");
  return 0;
}

std::vector<Case> cases(const BenchConfig& config) {
  std::vector<Case> list;
  for (const char* op : {"all_reduce_sum", "reduce_scatter_sum", "all_gather", "broadcast",
                         "reduce_sum", "gather", "all_to_all"}) {
    if (config.op != "all" && config.op != op) continue;
    for (int64_t bytes = config.min_bytes; bytes <= config.max_bytes; bytes *= 4) {
      list.push_back({.op = op, .bytes = bytes});
    }
  }
  return list;
}

int run(World& world, int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_collectives", "times collectives, and compares them with plain MPI calls");
  describe(spec, config);
  if (parse_or_print(spec, argc, argv, world.rank())) return 0;
  if (!config.axes && config.sizes.model_ranks() * config.sizes.replica > 1) {
    throw ConfigError("--replica, --pipeline, --context and --tensor need --axes");
  }
  if (config.cluster.empty() != config.cluster_out.empty() ||
      (!config.axes && !config.cluster.empty())) {
    throw ConfigError(
        "--cluster-out writes a copy of the --cluster file with the links that --axes fitted; use "
        "all three flags together");
  }
  if (world.size() < 2) {
    throw ConfigError(
        "bench_collectives: 1 rank, expected 2 or more: mpirun -np 2 bench_collectives");
  }
  if (config.max_bytes == 0) config.max_bytes = config.axes ? 256 << 20 : 64 << 20;
  if (config.max_bytes < config.min_bytes) {
    throw ConfigError(
        cat("--max-bytes: ", config.max_bytes, " is below --min-bytes, ", config.min_bytes));
  }
  if (config.axes) return run_axes(world, config);
  const auto group = world.group({.threads = config.threads});
  const Machine machine = describe_machine();
  if (world.rank() == 0) {
    std::printf("%d ranks on %s\nbest of several runs; fp32; 'group': memory shared with peers\n",
                world.size(), summary(machine).c_str());
    std::fflush(stdout);
  }
  Results results;
  for (const Case& test : cases(config)) {
    add_rows(results, test, measure(config, world, *group, test), world.size());
  }
  if (world.rank() == 0) {
    std::fputs(results.table.text().c_str(), stdout);
    const Json options = {{"ranks", world.size()}, {"threads", config.threads}};
    write_results(config.json, "bench_collectives", machine, options, results.rows);
  }
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(
      argc, argv, [&](shale::comm::World& world) { return shale::bench::run(world, argc, argv); });
}

#pragma once

#include <string>
#include <vector>

#include "shale/base/gpu_machine.h"
#include "shale/comm/mesh.h"

namespace shale::models::doctor {

enum class State {
  kOk,
  kWarning,  // training runs, but slower or with less than it could have
  kFailed,   // training cannot run
};

// One line of the doctor's page.
struct Finding {
  std::string section;
  std::string name;
  State state = State::kOk;
  std::string value;  // what was found
  std::string fix;    // what to do about it; empty when all is well
};

using Findings = std::vector<Finding>;

// Each adds what it finds; none throws because something is missing.
void examine_cpu(Findings& findings);
void examine_memory(Findings& findings);
void examine_disks(Findings& findings);
void examine_gpus(Findings& findings);
// Of GPUs that examine_gpus() has found, or of a simulated machine's.
void examine_topology(Findings& findings, const GpuMachine& machine);
// start_ranks: also let mpirun start two of them.
void examine_mpi(Findings& findings, bool start_ranks);
void examine_libraries(Findings& findings);

// What --bench measures.
struct BenchOptions {
  std::string folder;  // on the disk
  int ranks = 2;       // started by mpirun, along these axes
  int pipeline = 1, context = 1, tensor = 1;
  std::string hostfile;  // where they run; empty: here
};

// Measures memory, products, GPUs, a disk and the ranks' axes, in some ten seconds, and adds a line
// with a verdict for each.
void measure(Findings& findings, const BenchOptions& options);

// What measure() starts under mpirun, by this argument and the sizes of the axes: rank 0 prints a
// line of JSON for each axis that is longer than one rank.
constexpr const char* kAsBenchRank = "--as-bench-rank";
int run_as_bench_rank(const comm::ParallelSizes& sizes);

// What examine_mpi() starts under mpirun, by this argument: an exchange between the ranks, then a
// line from rank 0.
constexpr const char* kAsRank = "--as-rank";
int run_as_rank();

}  // namespace shale::models::doctor

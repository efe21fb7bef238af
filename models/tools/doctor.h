#pragma once

#include <string>
#include <vector>

#include "shale/base/gpu_machine.h"
#include "shale/comm/mesh.h"

namespace shale::models::doctor {

enum class State {
  kOk,
  kWarning,  // training runs, but slower or with less than possible
  kFailed,   // training cannot run
};

// One line of the output of shale doctor.
struct Finding {
  std::string section;
  std::string name;
  State state = State::kOk;
  std::string value;  // value found
  std::string fix;    // remedy; empty: nothing to do
};

using Findings = std::vector<Finding>;

// Add findings. Missing components are findings, not exceptions.
void examine_cpu(Findings& findings);
void examine_memory(Findings& findings);
void examine_disks(Findings& findings);
void examine_gpus(Findings& findings);
// Returns a finding on NCCL's version, as ncclGetVersion() returns it: a warning if it is too old.
Finding examine_nccl(int version);
// Adds the stored checks of GPU kernels (runtime/kernel_check/cache.h).
void examine_kernels(Findings& findings);
// machine: as found by examine_gpus(), or simulated.
void examine_topology(Findings& findings, const GpuMachine& machine);
// start_ranks: also start two ranks with mpirun.
void examine_mpi(Findings& findings, bool start_ranks);
void examine_libraries(Findings& findings);

// Options of --bench.
struct BenchOptions {
  std::string folder;  // folder on the disk to measure
  int ranks = 2;       // number of ranks to start with mpirun
  int pipeline = 1, context = 1, tensor = 1;
  std::string hostfile;  // host file for mpirun; empty: this host
};

// Measures memory, GEMMs, GPUs, a disk and the mesh axes in about ten seconds, and adds a line with
// a verdict for each.
void measure(Findings& findings, const BenchOptions& options);

// Argument with which measure() starts ranks under mpirun. The sizes of the mesh axes follow it.
// Rank 0 prints a line of JSON for each axis with more than one rank.
constexpr const char* kAsBenchRank = "--as-bench-rank";
int run_as_bench_rank(const comm::ParallelSizes& sizes);

// Argument with which examine_mpi() starts ranks under mpirun: they exchange data, and rank 0
// prints a line.
constexpr const char* kAsRank = "--as-rank";
int run_as_rank();

}  // namespace shale::models::doctor

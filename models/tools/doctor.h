#pragma once

#include <string>
#include <vector>

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
// start_ranks: also let mpirun start two of them.
void examine_mpi(Findings& findings, bool start_ranks);
void examine_libraries(Findings& findings);

// What examine_mpi() starts under mpirun, by this argument: an exchange between the ranks, then a
// line from rank 0.
constexpr const char* kAsRank = "--as-rank";
int run_as_rank();

}  // namespace shale::models::doctor

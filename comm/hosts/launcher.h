#pragma once

#include <span>
#include <string>

namespace shale::comm {

// Environment variables in which an MPI launcher gives a process its rank and the number of ranks.
// `size` is null for a launcher that does not give the number.
struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};

// Known launchers. Where one starts another, as mpirun uses srun, the inner one comes first.
std::span<const Launcher> launchers();

// True if an MPI launcher started this process.
bool started_by_launcher();

// Throws UnavailableError if the launcher started several processes of which MPI sees only this
// one: then the launcher belongs to another MPI, and each process would train alone.
void check_launched_ranks(int mpi_ranks, const std::string& mpi_version);

}  // namespace shale::comm

#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

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

// Command that starts ranks with one MPI library: `program` with lists of words.
struct RankStarter {
  std::string_view mpi;            // beginning of World's mpi_version()
  std::string_view program;        // command name that no other MPI library has
  std::string_view version;        // word in the output of `program --version`
  std::string_view install;        // Debian package
  std::vector<std::string> ranks;  // option before the number of ranks
  std::vector<std::string> unbound;  // options: a rank may use all cores of its host
  std::vector<std::string> many;     // options: a host may have more ranks than cores
  std::vector<std::string> hosts;    // option before "a:2,b:2", hosts with rank counts
  std::vector<std::string> as_root;  // options: root may start ranks
};

// Returns the starter of this MPI library. Throws UnavailableError for one that is not known.
const RankStarter& rank_starter(std::string_view mpi_version);

// True if an MPI launcher started this process.
bool started_by_launcher();

// Throws UnavailableError if the launcher started several processes of which MPI sees only this
// one: then the launcher belongs to another MPI, and each process would train alone.
void check_launched_ranks(int mpi_ranks, const std::string& mpi_version);

}  // namespace shale::comm

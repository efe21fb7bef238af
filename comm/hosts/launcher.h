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

// Known launchers. One launcher may start another: mpirun may start its daemons with srun. The one
// that starts the ranks themselves comes first.
std::span<const Launcher> launchers();

// Command that starts ranks with one MPI library: a program, and the words of its options.
struct RankStarter {
  std::string_view mpi;            // beginning of World's mpi_version()
  std::string_view program;        // command name that no other MPI library has
  std::string_view version;        // word in the output of `program --version`
  std::string_view install;        // Debian package
  std::vector<std::string> ranks;  // option before the number of ranks
  std::vector<std::string> unbound;  // options: a rank may use all cores of its host
  std::vector<std::string> many;     // options: a host may have more ranks than cores
  // option before a list such as "a:2,b:2", two ranks on each of the hosts a and b
  std::vector<std::string> hosts;
  std::vector<std::string> as_root;  // options: root may start ranks
};

// Returns the starter of this MPI library. Throws UnavailableError for one that is not known.
const RankStarter& rank_starter(std::string_view mpi_version);

// True if an MPI launcher started this process.
bool started_by_launcher();

// Throws UnavailableError if the launcher started several processes, but MPI sees only this one.
// Then the launcher belongs to another MPI library, and each process would train alone.
void check_launched_ranks(int mpi_ranks, const std::string& mpi_version);

}  // namespace shale::comm

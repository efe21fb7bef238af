#include "shale/comm/hosts/launcher.h"

#include <cstdlib>
#include <map>
#include <string>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/test/support/catch.h"

namespace shale::comm {
namespace {

using Variables = std::map<std::string, std::string>;

// Removes the variables of all launchers from the environment and sets `variables`.
void set_environment(const Variables& variables) {
  for (const Launcher& launcher : launchers()) {
    unsetenv(launcher.rank);
    if (launcher.size != nullptr) unsetenv(launcher.size);
  }
  unsetenv("PMI_FD");
  unsetenv("MPI_LOCALRANKID");
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
}

bool accepts(const Variables& variables, int mpi_ranks) {
  set_environment(variables);
  try {
    check_launched_ranks(mpi_ranks, "MPI 1.0");
  } catch (const UnavailableError&) {
    return false;
  }
  return true;
}

}  // namespace

TEST_CASE("ranks are started by the MPI library that the build uses", "[comm]") {
  // MPI_Get_library_version() begins with these words in Open MPI 4.1 and MPICH 4.0.
  CHECK(rank_starter("Open MPI v4.1.4").program == "mpirun");
  CHECK(rank_starter("MPICH Version:\t4.0.2").program == "mpiexec.hydra");
  CHECK(test::contains(test::message_of<UnavailableError>([] { rank_starter("LAM/MPI 7.1"); }),
                       "found LAM/MPI 7.1; use its own launcher: shale run -- mpiexec"));
}

TEST_CASE("each launcher is recognised by its rank or its number of ranks", "[comm]") {
  set_environment({});
  CHECK_FALSE(started_by_launcher());
  for (const Launcher& launcher : launchers()) {
    set_environment({{launcher.rank, "0"}});
    CHECK(started_by_launcher());
    if (launcher.size == nullptr) continue;
    set_environment({{launcher.size, "1"}});
    CHECK(started_by_launcher());
  }
  set_environment({{"PMI_FD", "7"}});
  CHECK(started_by_launcher());
  set_environment({});
}

TEST_CASE("processes that the launcher of another MPI started are refused", "[comm]") {
  for (const Launcher& launcher : launchers()) {
    if (launcher.size == nullptr) continue;
    set_environment({{launcher.rank, "0"}, {launcher.size, "8"}});
    const std::string message =
        test::message_of<UnavailableError>([] { check_launched_ranks(1, "MPI 1.0"); });
    CHECK(test::contains(message, cat(launcher.name, " started 8 processes")));
    CHECK(test::contains(message, "but MPI 1.0 counts only 1"));
  }
  set_environment({});
}

TEST_CASE("ranks that MPI sees are accepted, also within the step of another launcher", "[comm]") {
  CHECK(accepts({{"PMI_RANK", "0"}, {"PMI_SIZE", "8"}}, 8));
  CHECK(accepts({{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}, 1));
  CHECK(accepts({{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 1));
  CHECK(accepts({{"PMIX_RANK", "0"}}, 1));
  set_environment({});
}

}  // namespace shale::comm

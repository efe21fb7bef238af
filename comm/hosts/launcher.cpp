#include "shale/comm/hosts/launcher.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "shale/base/error.h"
#include "shale/base/parse.h"

namespace shale::comm {
namespace {

constexpr std::array kLaunchers = {
    Launcher{"Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    Launcher{"MVAPICH's mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"},
    Launcher{"jsrun", "JSM_NAMESPACE_RANK", "JSM_NAMESPACE_SIZE"},
    Launcher{"a launcher with PMI, such as MPICH's mpiexec,", "PMI_RANK", "PMI_SIZE"},
    Launcher{"PALS", "PALS_RANKID", nullptr},
    Launcher{"Flux", "FLUX_TASK_RANK", "FLUX_JOB_SIZE"},
    Launcher{"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    Launcher{"a launcher with PMIx", "PMIX_RANK", nullptr},
};
// Other variables that show that a launcher started this process. They give neither rank nor size.
constexpr std::array kOtherSigns = {"PMI_FD", "MPI_LOCALRANKID"};

bool is_set(const char* name) { return name != nullptr && std::getenv(name) != nullptr; }

}  // namespace

std::span<const Launcher> launchers() { return kLaunchers; }

const RankStarter& rank_starter(std::string_view mpi_version) {
  static const std::array kStarters = {
      RankStarter{.mpi = "Open MPI",
                  .program = "mpirun",
                  .version = "Open MPI",
                  .install = "openmpi-bin",
                  .ranks = {"-np"},
                  .unbound = {"--bind-to", "none"},
                  .many = {"--map-by", ":OVERSUBSCRIBE"},
                  .hosts = {"--host"},
                  .as_root = {"--allow-run-as-root"}},
      RankStarter{.mpi = "MPICH",
                  .program = "mpiexec.hydra",
                  .version = "HYDRA",
                  .install = "mpich",
                  .ranks = {"-n"},
                  .unbound = {"-bind-to", "none"},
                  .many = {},
                  .hosts = {"-hosts"},
                  .as_root = {}},
  };
  const auto found = std::find_if(
      kStarters.begin(), kStarters.end(),
      [&](const RankStarter& starter) { return mpi_version.starts_with(starter.mpi); });
  if (found != kStarters.end()) return *found;
  throw UnavailableError(cat("expected Open MPI or MPICH to start ranks, found ", mpi_version,
                             "; use its own launcher: shale run -- mpiexec -n 2 train_lm ..."));
}

bool started_by_launcher() {
  return std::any_of(kOtherSigns.begin(), kOtherSigns.end(), is_set) ||
         std::any_of(kLaunchers.begin(), kLaunchers.end(), [](const Launcher& launcher) {
           return is_set(launcher.rank) || is_set(launcher.size);
         });
}

void check_launched_ranks(int mpi_ranks, const std::string& mpi_version) {
  const auto launcher = std::find_if(kLaunchers.begin(), kLaunchers.end(),
                                     [](const Launcher& each) { return is_set(each.size); });
  if (mpi_ranks != 1 || launcher == kLaunchers.end()) return;
  const char* const size = std::getenv(launcher->size);
  if (parse_int(size).value_or(1) <= 1) return;
  throw UnavailableError(
      cat(launcher->name, " started ", size, " processes (", launcher->size, "), but ", mpi_version,
          " counts only 1, because the launcher belongs to another MPI library; use the mpirun of "
          "this library, or srun with the option --mpi that this library needs (srun --mpi=list "
          "names the options of this cluster)"));
}

}  // namespace shale::comm

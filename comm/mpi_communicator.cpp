#include "shale/comm/mpi_communicator.h"

#include <array>

#include "shale/comm/mpi_internal.h"

namespace shale::comm {

void check_for_guest(MPI_Comm comm) {
  if (!mpi_running()) {
    throw InternalError(
        "World: MPI is not running; call MPI_Init_thread before making it, "
        "and MPI_Finalize after destroying it");
  }
  constexpr std::array kLevels = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED",
                                  "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};
  constexpr std::array kValues = {MPI_THREAD_SINGLE, MPI_THREAD_FUNNELED, MPI_THREAD_SERIALIZED,
                                  MPI_THREAD_MULTIPLE};
  int level = MPI_THREAD_SINGLE;
  check_mpi(MPI_Query_thread(&level), "MPI_Query_thread");
  for (size_t i = 0; i + 1 < kValues.size(); ++i) {
    if (level != kValues[i]) continue;
    throw UnavailableError(cat("World: MPI was started with ", kLevels[i],
                               ", expected MPI_THREAD_MULTIPLE from MPI_Init_thread"));
  }
  if (comm == MPI_COMM_NULL) {
    throw InternalError(
        "World: the communicator is MPI_COMM_NULL: it was freed, or this process is not in it; "
        "expected an intracommunicator, on its members only");
  }
  int between = 0;
  check_mpi(MPI_Comm_test_inter(comm, &between), "MPI_Comm_test_inter");
  if (between != 0) {
    throw InternalError(
        "World: the communicator is an intercommunicator, expected an intracommunicator; "
        "MPI_Intercomm_merge makes one of it");
  }
}

}  // namespace shale::comm

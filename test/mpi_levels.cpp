// Tests when a World of a communicator can be made: only while MPI is running, and only if MPI
// allows calls from several threads. Because MPI starts once per process, this is a program of its
// own.
#include <cstdio>
#include <string>

#include "shale/base/error.h"
#include "shale/comm/mpi_communicator.h"
#include "shale/comm/world.h"

namespace {

using namespace shale;

// Returns true if making a World throws an E whose message contains these words.
template <typename E>
bool refused(const char* when, const std::string& words) {
  try {
    comm::World world(comm::MpiCommunicator{MPI_COMM_WORLD});
  } catch (const E& error) {
    std::printf("%s: %s\n", when, error.what());
    return std::string(error.what()).find(words) != std::string::npos;
  }
  std::printf("%s: expected an error, found a World\n", when);
  return false;
}

bool run() {
  bool ok = refused<InternalError>("before MPI_Init", "MPI is not running");
  int level = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level);
  if (level != MPI_THREAD_SERIALIZED) {
    std::printf("skipped: MPI gives level %d where MPI_THREAD_SERIALIZED is asked for\n", level);
  } else {
    ok = refused<UnavailableError>(
             "with too few threads",
             "started with MPI_THREAD_SERIALIZED, expected MPI_THREAD_MULTIPLE") &&
         ok;
  }
  MPI_Finalize();
  return refused<InternalError>("after MPI_Finalize", "MPI is not running") && ok;
}

}  // namespace

int main() {
  return run() ? 0 : 1;
}

#pragma once

#include <mpi.h>

namespace shale::comm {

// Communicator of a program that has started MPI itself, for World and run(). The World has the
// ranks of this communicator, which must be an intracommunicator; this is checked. The World
// duplicates it; the program keeps ownership. Not detected: a handle whose communicator was freed
// through a copy of the handle.
struct MpiCommunicator {
  MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace shale::comm

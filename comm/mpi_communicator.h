#pragma once

#include <mpi.h>

namespace shale::comm {

// Communicator of a program that has started MPI itself, for World and run(): the World gets its
// ranks. It must be an intracommunicator, which is checked. The World duplicates it; the program
// keeps ownership. A handle whose communicator was freed through a copy of it is not detected.
struct MpiCommunicator {
  MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace shale::comm

#pragma once

#include <mpi.h>

namespace shale::comm {

// The communicator of a program that has started MPI itself, for World and run(): the ranks in it
// are those of the World. An intracommunicator; it is duplicated, and stays the program's.
struct MpiCommunicator {
  MPI_Comm comm = MPI_COMM_NULL;
};

}  // namespace shale::comm

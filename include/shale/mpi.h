#pragma once

// For programs that have initialised MPI themselves: a World over one of their communicators. Only
// this public header includes another library's; link MPI::MPI_C or the program's equivalent.

#include "shale/comm/mpi_communicator.h"
#include "shale/comm/world.h"

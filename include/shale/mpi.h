#pragma once

// Shale in a program that has started MPI itself: a World of one of its communicators. The only
// public header that includes another library's; link MPI::MPI_C, or what the program has for it.

#include "shale/comm/mpi_communicator.h"
#include "shale/comm/world.h"

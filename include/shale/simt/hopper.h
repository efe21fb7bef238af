#pragma once

// The same with what only Hopper has: copies of tiles, barriers in memory, products of warpgroups.

#include "shale/kernels/simt/hopper.h"

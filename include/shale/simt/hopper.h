#pragma once

// simt.h with Hopper's features: TMA tile copies, shared-memory barriers, warpgroup MMA.

#include "shale/kernels/simt/hopper.h"

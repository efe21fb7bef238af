#pragma once

// Host memory in a training loop of one's own: activations, optimizer states and their step.

#include "shale/runtime/offload/activations.h"
#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/offload/optimizer_offload.h"

#pragma once

// Host offload for custom training loops: activations, optimizer states and the optimizer step.

#include "shale/runtime/offload/activations.h"
#include "shale/runtime/offload/host_tier.h"
#include "shale/runtime/offload/optimizer_offload.h"

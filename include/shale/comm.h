#pragma once

// Ranks of a run (World), process groups with their collectives, links between ranks, device
// meshes.

#include "shale/comm/collective_ops.h"
#include "shale/comm/link/pipe_link.h"
#include "shale/comm/mesh.h"
#include "shale/comm/process_group.h"
#include "shale/comm/work.h"
#include "shale/comm/world.h"

#pragma once

// The ranks of a run (World), groups of them with their collectives and links, meshes of groups.

#include "shale/comm/collective_ops.h"
#include "shale/comm/link/pipe_link.h"
#include "shale/comm/mesh.h"
#include "shale/comm/process_group.h"
#include "shale/comm/work.h"
#include "shale/comm/world.h"

#pragma once

// Training states on disk: what a rank has of one, saving it beside the training, reading it on any
// number of ranks.

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/checkpoint/training_state.h"

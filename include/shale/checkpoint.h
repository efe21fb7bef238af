#pragma once

// Distributed checkpoints: a rank's part of the training state, saving it asynchronously, loading
// it on any number of ranks.

#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/comm/checkpoint/saver.h"
#include "shale/comm/checkpoint/training_state.h"

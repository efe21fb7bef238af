#pragma once

// Optimizers (AdamW, Lion, Sgd, Adafactor, Muon, Lamb), their parameter shards, clipping,
// schedules.

#include "shale/runtime/optim/adafactor.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/optim/lamb.h"
#include "shale/runtime/optim/muon.h"
#include "shale/runtime/optim/newton_schulz.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/optim/schedule.h"
#include "shale/runtime/optim/shard.h"

#pragma once

// A Task (model, data, loss) and the Trainer that runs it; TrainStep for custom loops; rows of
// metrics.jsonl.

#include "shale/models/training/batch_ramp.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/models/training/report/metrics.h"
#include "shale/models/training/run_config.h"
#include "shale/models/training/step.h"
#include "shale/models/training/stop_signals.h"
#include "shale/models/training/task.h"
#include "shale/models/training/trainer.h"

#pragma once

// Batches of named tensors, made ahead on a thread; the order of samples; datasets of tokens.

#include "shale/runtime/data/batch.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/data/prefetch.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/data/tokens/token_dataset.h"

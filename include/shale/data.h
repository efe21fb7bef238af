#pragma once

// Batches of named tensors, prefetched on a thread; the order of samples; token datasets.

#include "shale/runtime/data/batch.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/data/prefetch.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/data/tokens/batches.h"
#include "shale/runtime/data/tokens/token_dataset.h"

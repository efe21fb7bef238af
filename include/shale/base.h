#pragma once

// Basics: devices and their features (supports_bf16()), dtypes, shapes and memory views; errors and
// their exit codes; the log; program options.

#include "shale/base/config.h"
#include "shale/base/device.h"
#include "shale/base/dtype.h"
#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/log.h"
#include "shale/base/shape.h"
#include "shale/base/version.h"
#include "shale/base/view.h"

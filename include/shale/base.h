#pragma once

// What everything else stands on: devices and what they support (supports_bf16()), dtypes, shapes
// and views of memory; errors and the exit codes they carry; the log; options of a program.

#include "shale/base/config.h"
#include "shale/base/device.h"
#include "shale/base/dtype.h"
#include "shale/base/error.h"
#include "shale/base/gpu_model.h"
#include "shale/base/log.h"
#include "shale/base/shape.h"
#include "shale/base/version.h"
#include "shale/base/view.h"

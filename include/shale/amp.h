#pragma once

// Mixed precision: autocast regions, precision of a module, loss scaling.

#include "shale/runtime/amp/autocast.h"
#include "shale/runtime/amp/grad_scaler.h"
#include "shale/runtime/amp/precision.h"

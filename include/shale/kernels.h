#pragma once

// For custom ops: slots, which hold one function per device; Exec, the execution state that a
// kernel gets besides its arguments; argument checks; the existing slots.

#include "shale/base/exec.h"
#include "shale/kernels/check.h"
#include "shale/kernels/slot.h"
#include "shale/kernels/slots.h"

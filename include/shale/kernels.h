#pragma once

// What an op of one's own calls and stands on: slots, which hold one function per device; Exec,
// what a kernel gets besides its arguments; checks of arguments; the slots that are there.

#include "shale/base/exec.h"
#include "shale/kernels/check.h"
#include "shale/kernels/slot.h"
#include "shale/kernels/slots.h"

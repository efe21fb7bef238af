#pragma once

// Modules, their parameters and initial values; standard layers.

#include "shale/runtime/nn/conv.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/nn/init.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/module.h"
#include "shale/runtime/nn/moe.h"
#include "shale/runtime/nn/piece.h"

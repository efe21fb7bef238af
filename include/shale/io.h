#pragma once

// Tensor files in safetensors format: a single file or a folder of shards.

#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_writer.h"

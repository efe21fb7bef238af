#pragma once

// Files of tensors in safetensors format, one or a folder of them.

#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_writer.h"

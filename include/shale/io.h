#pragma once

// Tensor files in safetensors format: a single file or a folder of shards. Export of a forward as
// an ONNX file.

#include "shale/runtime/export/onnx.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_writer.h"

#pragma once

#include "shale/kernels/simt/engine/tensor_map.h"

namespace shale::kernels::emu::simt {

using emulator::make_tensor_map;
using emulator::TensorMap;

}  // namespace shale::kernels::emu::simt

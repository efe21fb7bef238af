#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Convolutions by cuDNN. False, and nothing done, where it cannot be loaded or has no engine for
// them; UnavailableError instead where SHALE_CUDNN asks for it.
//
// Workspace: weights in the order of the library, or their gradient in f32, and what its plan
// wants.
bool conv_by_cudnn(const Exec& exec, const ConvArgs& a);
bool conv_by_cudnn(const Exec& exec, const ConvInputGradArgs& a);
bool conv_by_cudnn(const Exec& exec, const ConvWeightGradArgs& a);

}  // namespace shale::kernels::SHALE_BACKEND

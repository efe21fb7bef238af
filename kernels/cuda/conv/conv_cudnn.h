#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Convolutions by cuDNN. Return false, without doing anything, if cuDNN cannot be loaded or has no
// engine for the convolution. If SHALE_CUDNN asks for cuDNN, they throw UnavailableError in these
// cases.
//
// Workspace: weights in cuDNN's layout, or their gradient in f32, and the workspace of cuDNN's
// plan.
bool conv_by_cudnn(const Exec& exec, const ConvArgs& a);
bool conv_by_cudnn(const Exec& exec, const ConvInputGradArgs& a);
bool conv_by_cudnn(const Exec& exec, const ConvWeightGradArgs& a);

}  // namespace shale::kernels::SHALE_BACKEND

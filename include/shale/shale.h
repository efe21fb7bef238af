#pragma once

// All that a training program needs. Besides these there are
//   shale/kernels.h, shale/simt/  for kernels of one's own
//   shale/language.h              for language models
//   shale/offload.h               for host memory in a loop of one's own

#include "shale/amp.h"
#include "shale/autograd.h"
#include "shale/base.h"
#include "shale/checkpoint.h"
#include "shale/comm.h"
#include "shale/data.h"
#include "shale/io.h"
#include "shale/nn.h"
#include "shale/ops.h"
#include "shale/optim.h"
#include "shale/parallel.h"
#include "shale/tensor.h"
#include "shale/training.h"

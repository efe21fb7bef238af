#pragma once

// Everything that a training program needs. Other public headers:
//   shale/kernels.h, shale/simt/  for custom kernels
//   shale/language.h              for language models
//   shale/offload.h               for host offload in a custom loop

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

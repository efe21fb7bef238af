#pragma once

#include "shale/base/exec.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/simt/backend.h"

namespace shale::kernels::SHALE_BACKEND {

// Computes a GEMM with an epilogue by plain GEMMs, for which it calls `plain`, and elementwise
// kernels. The result of a plain GEMM is rounded to the dtype of c before the elementwise kernel
// reads it; the fused kD* epilogues do not round it. Throws UnavailableError if a result that
// elementwise kernels read or write is not contiguous.
void gemm_in_parts(const Exec& exec, const GemmArgs& args,
                   void (*plain)(const Exec&, const GemmArgs&));

}  // namespace shale::kernels::SHALE_BACKEND

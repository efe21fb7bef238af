#pragma once

#include "shale/kernels/attention.h"

namespace shale::kernels::cpu {

// Entries of the slots of the same names. Head sizes 1 to 256. The bits do not depend on
// exec.threads. Throw ShapeError and DTypeError.
void attention_fwd(const Exec& exec, const AttentionFwdArgs& args);
void attention_bwd(const Exec& exec, const AttentionBwdArgs& args);

}  // namespace shale::kernels::cpu

#pragma once

#include "shale/kernels/adafactor.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/embedding.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/norm.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/random.h"
#include "shale/kernels/reduce.h"
#include "shale/kernels/tree_sum.h"

namespace shale::kernels {

// What a slot asks of its arguments, the same on every device: their shapes, strides and dtypes,
// not the values in device memory. They throw ShapeError, DTypeError or InternalError with the op,
// the argument, what was expected and what was got.
void check_args(const AxpbyArgs& a);
void check_args(const MulArgs& a);
void check_args(const CopyArgs& a);
void check_args(const FillArgs& a);
void check_args(const GeluFwdArgs& a);
void check_args(const GeluBwdArgs& a);
void check_args(const SwiGluFwdArgs& a);
void check_args(const DropoutArgs& a);

void check_args(const LayerNormFwdArgs& a);
void check_args(const LayerNormBwdArgs& a);
void check_args(const RmsNormFwdArgs& a);
void check_args(const RmsNormBwdArgs& a);

void check_args(const CrossEntropyArgs& a);

void check_args(const EmbeddingFwdArgs& a);
void check_args(const EmbeddingBwdArgs& a);

void check_args(const AdamWArgs& a);
void check_args(const AdamW8bitArgs& a);
void check_args(const LionArgs& a);
void check_args(const SgdArgs& a);
void check_args(const AdafactorMeansArgs& a);
void check_args(const AdafactorAverageArgs& a);
void check_args(const AdafactorSquaresArgs& a);
void check_args(const AdafactorArgs& a);

void check_args(const ColumnSumArgs& a);
void check_args(const SumArgs& a);
void check_args(const SumSquaresArgs& a);
void check_args(const ClipFactorArgs& a);
void check_args(const TreeSumArgs& a);

void check_args(const RandomNormalArgs& a);

}  // namespace shale::kernels

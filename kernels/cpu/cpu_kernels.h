#pragma once

#include "shale/kernels/adafactor.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/embedding.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/norm.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/random.h"
#include "shale/kernels/reduce.h"

// CPU entries of the slots, under the slots' names.
namespace shale::kernels::cpu {

void layer_norm_fwd(const Exec& exec, const LayerNormFwdArgs& a);
void layer_norm_bwd(const Exec& exec, const LayerNormBwdArgs& a);
void rms_norm_fwd(const Exec& exec, const RmsNormFwdArgs& a);
void rms_norm_bwd(const Exec& exec, const RmsNormBwdArgs& a);
void cross_entropy(const Exec& exec, const CrossEntropyArgs& a);
void embedding_fwd(const Exec& exec, const EmbeddingFwdArgs& a);
void embedding_bwd(const Exec& exec, const EmbeddingBwdArgs& a);

void axpby(const Exec& exec, const AxpbyArgs& a);
void mul(const Exec& exec, const MulArgs& a);
void fill(const Exec& exec, const FillArgs& a);
void copy(const Exec& exec, const CopyArgs& a);
void gelu_fwd(const Exec& exec, const GeluFwdArgs& a);
void gelu_bwd(const Exec& exec, const GeluBwdArgs& a);
void swiglu_fwd(const Exec& exec, const SwiGluFwdArgs& a);
void dropout(const Exec& exec, const DropoutArgs& a);

void column_sum(const Exec& exec, const ColumnSumArgs& a);
void sum(const Exec& exec, const SumArgs& a);
void sum_squares(const Exec& exec, const SumSquaresArgs& a);
void clip_factor(const Exec& exec, const ClipFactorArgs& a);

void adamw(const Exec& exec, const AdamWArgs& a);
void adamw_8bit(const Exec& exec, const AdamW8bitArgs& a);
void lion(const Exec& exec, const LionArgs& a);
void adafactor_means(const Exec& exec, const AdafactorMeansArgs& a);
void adafactor_average(const Exec& exec, const AdafactorAverageArgs& a);
void adafactor_squares(const Exec& exec, const AdafactorSquaresArgs& a);
void adafactor(const Exec& exec, const AdafactorArgs& a);
void sgd(const Exec& exec, const SgdArgs& a);
void random_normal(const Exec& exec, const RandomNormalArgs& a);

}  // namespace shale::kernels::cpu

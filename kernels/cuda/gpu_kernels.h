#pragma once

#include "shale/kernels/adafactor.h"
#include "shale/kernels/attention.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/embedding.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/loss_scale.h"
#include "shale/kernels/norm.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/random.h"
#include "shale/kernels/reduce.h"
#include "shale/kernels/simt/backend.h"
#include "shale/kernels/tree_sum.h"

// What the registry fills the slots with; each is documented at its slot.
namespace shale::kernels::SHALE_BACKEND {

void attention_fwd(const Exec& exec, const AttentionFwdArgs& args);
void attention_bwd(const Exec& exec, const AttentionBwdArgs& args);
void axpby(const Exec& exec, const AxpbyArgs& args);
void mul(const Exec& exec, const MulArgs& args);
void fill(const Exec& exec, const FillArgs& args);
void copy(const Exec& exec, const CopyArgs& args);
void gelu_fwd(const Exec& exec, const GeluFwdArgs& args);
void gelu_bwd(const Exec& exec, const GeluBwdArgs& args);
void swiglu_fwd(const Exec& exec, const SwiGluFwdArgs& args);
void dropout(const Exec& exec, const DropoutArgs& args);

void gemm(const Exec& exec, const GemmArgs& args);
void layer_norm_fwd(const Exec& exec, const LayerNormFwdArgs& args);
void layer_norm_bwd(const Exec& exec, const LayerNormBwdArgs& args);
void rms_norm_fwd(const Exec& exec, const RmsNormFwdArgs& args);
void rms_norm_bwd(const Exec& exec, const RmsNormBwdArgs& args);

void cross_entropy(const Exec& exec, const CrossEntropyArgs& args);

void embedding_fwd(const Exec& exec, const EmbeddingFwdArgs& args);
void embedding_bwd(const Exec& exec, const EmbeddingBwdArgs& args);

void adamw(const Exec& exec, const AdamWArgs& args);
void adamw_8bit(const Exec& exec, const AdamW8bitArgs& args);
void lion(const Exec& exec, const LionArgs& args);
void sgd(const Exec& exec, const SgdArgs& args);

void adafactor_means(const Exec& exec, const AdafactorMeansArgs& args);
void adafactor_average(const Exec& exec, const AdafactorAverageArgs& args);
void adafactor_squares(const Exec& exec, const AdafactorSquaresArgs& args);
void adafactor(const Exec& exec, const AdafactorArgs& args);

void random_normal(const Exec& exec, const RandomNormalArgs& args);

void column_sum(const Exec& exec, const ColumnSumArgs& args);
void sum(const Exec& exec, const SumArgs& args);
void sum_squares(const Exec& exec, const SumSquaresArgs& args);
void clip_factor(const Exec& exec, const ClipFactorArgs& args);
void tree_sum(const Exec& exec, const TreeSumArgs& args);

void update_loss_scale(const Exec& exec, const LossScaleArgs& args);

}  // namespace shale::kernels::SHALE_BACKEND

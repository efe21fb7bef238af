#pragma once

#include "shale/kernels/adafactor.h"
#include "shale/kernels/attention.h"
#include "shale/kernels/batch_norm.h"
#include "shale/kernels/block_codes.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/embedding.h"
#include "shale/kernels/gemm.h"
#include "shale/kernels/grouped_gemm.h"
#include "shale/kernels/index.h"
#include "shale/kernels/loss.h"
#include "shale/kernels/loss_scale.h"
#include "shale/kernels/moe.h"
#include "shale/kernels/muon.h"
#include "shale/kernels/norm.h"
#include "shale/kernels/one_bit.h"
#include "shale/kernels/optim.h"
#include "shale/kernels/pointwise.h"
#include "shale/kernels/pool.h"
#include "shale/kernels/random.h"
#include "shale/kernels/reduce.h"
#include "shale/kernels/reduce_dims.h"
#include "shale/kernels/rope.h"
#include "shale/kernels/softmax.h"
#include "shale/kernels/tree_sum.h"

namespace shale::bench {

// The work that a kernel call is for, whatever the kernel does: multiply-adds count two FLOP, and
// only matrix products are counted; every operand is read once and every result written once, and a
// result that is added to is also read. A kernel that reads something twice does not get credit.
struct Cost {
  double flops = 0;
  double read_bytes = 0;
  double written_bytes = 0;

  double bytes() const { return read_bytes + written_bytes; }
  Cost& operator+=(const Cost& other);
};

Cost cost_of(const kernels::GemmArgs& a);
// Forward has two products over the (query, key) pairs that the mask leaves, backward has five: the
// scores are computed again.
Cost cost_of(const kernels::AttentionFwdArgs& a);
Cost cost_of(const kernels::AttentionBwdArgs& a);
Cost cost_of(const kernels::LayerNormFwdArgs& a);
Cost cost_of(const kernels::LayerNormBwdArgs& a);
Cost cost_of(const kernels::RmsNormFwdArgs& a);
Cost cost_of(const kernels::RmsNormBwdArgs& a);
Cost cost_of(const kernels::CrossEntropyArgs& a);
Cost cost_of(const kernels::CrossEntropyStatsArgs& a);
Cost cost_of(const kernels::CrossEntropyGradArgs& a);
Cost cost_of(const kernels::DecodeBlocksArgs& a);
Cost cost_of(const kernels::EncodeBlocksArgs& a);
Cost cost_of(const kernels::EmbeddingFwdArgs& a);
Cost cost_of(const kernels::EmbeddingBwdArgs& a);
Cost cost_of(const kernels::AdamWArgs& a);
Cost cost_of(const kernels::AdamW8bitArgs& a);
Cost cost_of(const kernels::LionArgs& a);
Cost cost_of(const kernels::AdafactorMeansArgs& a);
Cost cost_of(const kernels::AdafactorAverageArgs& a);
Cost cost_of(const kernels::AdafactorSquaresArgs& a);
Cost cost_of(const kernels::AdafactorArgs& a);
Cost cost_of(const kernels::MuonMomentumArgs& a);
Cost cost_of(const kernels::InverseNormArgs& a);
Cost cost_of(const kernels::MuonArgs& a);
Cost cost_of(const kernels::SgdArgs& a);
Cost cost_of(const kernels::WeightAverageArgs& a);
Cost cost_of(const kernels::SignPackArgs& a);
Cost cost_of(const kernels::SignMeanArgs& a);
Cost cost_of(const kernels::SignUnpackArgs& a);
Cost cost_of(const kernels::AxpbyArgs& a);
Cost cost_of(const kernels::MulArgs& a);
Cost cost_of(const kernels::FillArgs& a);
Cost cost_of(const kernels::CopyArgs& a);
Cost cost_of(const kernels::GeluFwdArgs& a);
Cost cost_of(const kernels::GeluBwdArgs& a);
Cost cost_of(const kernels::SwiGluFwdArgs& a);
Cost cost_of(const kernels::DropoutArgs& a);
Cost cost_of(const kernels::RopeArgs& a);
Cost cost_of(const kernels::ColumnSumArgs& a);
Cost cost_of(const kernels::SumArgs& a);
Cost cost_of(const kernels::SumSquaresArgs& a);
Cost cost_of(const kernels::ClipFactorArgs& a);
Cost cost_of(const kernels::LossScaleArgs& a);
Cost cost_of(const kernels::SkipOutlierArgs& a);
Cost cost_of(const kernels::RandomNormalArgs& a);
Cost cost_of(const kernels::TreeSumArgs& a);
// Inputs that are broadcast are read once.
Cost cost_of(const kernels::PointwiseArgs& a);
Cost cost_of(const kernels::ReduceDimsArgs& a);
Cost cost_of(const kernels::SoftmaxFwdArgs& a);
Cost cost_of(const kernels::SoftmaxBwdArgs& a);
Cost cost_of(const kernels::GatherArgs& a);
Cost cost_of(const kernels::ScatterAddArgs& a);
// Of grouped products all rows count, those of nobody too: whose they are stands on the device.
Cost cost_of(const kernels::GroupedGemmArgs& a);
Cost cost_of(const kernels::MoeRouteFwdArgs& a);
Cost cost_of(const kernels::MoeRouteBwdArgs& a);
Cost cost_of(const kernels::MoeSortArgs& a);
Cost cost_of(const kernels::MoeBalanceArgs& a);
Cost cost_of(const kernels::MoePermuteArgs& a);
Cost cost_of(const kernels::MoeCombineArgs& a);
Cost cost_of(const kernels::MoeDotsArgs& a);
// Windows count whole, also where they reach beyond the image.
Cost cost_of(const kernels::ConvArgs& a);
Cost cost_of(const kernels::ConvInputGradArgs& a);
Cost cost_of(const kernels::ConvWeightGradArgs& a);
Cost cost_of(const kernels::MaxPoolArgs& a);
Cost cost_of(const kernels::MaxPoolGradArgs& a);
Cost cost_of(const kernels::BatchMomentsArgs& a);
Cost cost_of(const kernels::BatchMergeArgs& a);
Cost cost_of(const kernels::BatchNormArgs& a);
Cost cost_of(const kernels::BatchNormSumsArgs& a);
Cost cost_of(const kernels::BatchNormGradArgs& a);

}  // namespace shale::bench

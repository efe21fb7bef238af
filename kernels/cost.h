#pragma once

#include "shale/kernels/adafactor.h"
#include "shale/kernels/attention.h"
#include "shale/kernels/batch_norm.h"
#include "shale/kernels/block_codes.h"
#include "shale/kernels/conv.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/embedding.h"
#include "shale/kernels/fp8.h"
#include "shale/kernels/fp8_shard.h"
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

namespace shale::kernels {

// The minimum work of a kernel call, however the kernel does it. A multiply-add counts as two FLOP,
// and only matmuls are counted. Every operand is read once and every result written once; a result
// that is accumulated into is also read. Repeated reads do not count.
struct Cost {
  double flops = 0;
  double read_bytes = 0;
  double written_bytes = 0;

  double bytes() const { return read_bytes + written_bytes; }
  Cost& operator+=(const Cost& other);
};

Cost cost_of(const GemmArgs& a);
// Forward has two matmuls over the (query, key) pairs that the mask does not hide. Backward has
// five, because it recomputes the scores.
Cost cost_of(const AttentionFwdArgs& a);
Cost cost_of(const AttentionBwdArgs& a);
Cost cost_of(const AttentionMergeArgs& a);
Cost cost_of(const LayerNormFwdArgs& a);
Cost cost_of(const LayerNormBwdArgs& a);
Cost cost_of(const RmsNormFwdArgs& a);
Cost cost_of(const RmsNormBwdArgs& a);
Cost cost_of(const CrossEntropyArgs& a);
Cost cost_of(const CrossEntropyStatsArgs& a);
Cost cost_of(const CrossEntropyGradArgs& a);
Cost cost_of(const DecodeBlocksArgs& a);
Cost cost_of(const EncodeBlocksArgs& a);
Cost cost_of(const QuantizeFp8Args& a);
Cost cost_of(const Fp8GemmArgs& a);
Cost cost_of(const Fp8LargestArgs& a);
Cost cost_of(const Fp8EncodeArgs& a);
Cost cost_of(const Fp8DecodeArgs& a);
Cost cost_of(const Fp8OperandsArgs& a);
Cost cost_of(const EmbeddingFwdArgs& a);
Cost cost_of(const EmbeddingBwdArgs& a);
Cost cost_of(const AdamWArgs& a);
Cost cost_of(const AdamW8bitArgs& a);
Cost cost_of(const LionArgs& a);
Cost cost_of(const AdafactorMeansArgs& a);
Cost cost_of(const AdafactorAverageArgs& a);
Cost cost_of(const AdafactorSquaresArgs& a);
Cost cost_of(const AdafactorArgs& a);
Cost cost_of(const MuonMomentumArgs& a);
Cost cost_of(const InverseNormArgs& a);
Cost cost_of(const MuonArgs& a);
Cost cost_of(const SgdArgs& a);
Cost cost_of(const WeightAverageArgs& a);
Cost cost_of(const SignPackArgs& a);
Cost cost_of(const SignMeanArgs& a);
Cost cost_of(const SignUnpackArgs& a);
Cost cost_of(const AxpbyArgs& a);
Cost cost_of(const MulArgs& a);
Cost cost_of(const FillArgs& a);
Cost cost_of(const CopyArgs& a);
Cost cost_of(const GeluFwdArgs& a);
Cost cost_of(const GeluBwdArgs& a);
Cost cost_of(const SwiGluFwdArgs& a);
Cost cost_of(const DropoutArgs& a);
Cost cost_of(const RopeArgs& a);
Cost cost_of(const ColumnSumArgs& a);
Cost cost_of(const SumArgs& a);
Cost cost_of(const SumSquaresArgs& a);
Cost cost_of(const ClipFactorArgs& a);
Cost cost_of(const LossScaleArgs& a);
Cost cost_of(const SkipOutlierArgs& a);
Cost cost_of(const RandomNormalArgs& a);
Cost cost_of(const TreeSumArgs& a);
// Broadcast inputs are read once.
Cost cost_of(const PointwiseArgs& a);
Cost cost_of(const ReduceDimsArgs& a);
Cost cost_of(const SoftmaxFwdArgs& a);
Cost cost_of(const SoftmaxBwdArgs& a);
Cost cost_of(const GatherArgs& a);
Cost cost_of(const ScatterAddArgs& a);
// Counts all rows of a grouped GEMM, because the group sizes are on the device.
Cost cost_of(const GroupedGemmArgs& a);
Cost cost_of(const MoeRouteFwdArgs& a);
Cost cost_of(const MoeRouteBwdArgs& a);
Cost cost_of(const MoeSortArgs& a);
Cost cost_of(const MoeBalanceArgs& a);
Cost cost_of(const MoePermuteArgs& a);
Cost cost_of(const MoeCombineArgs& a);
Cost cost_of(const MoeDotsArgs& a);
// Windows count fully, even where they reach beyond the image.
Cost cost_of(const ConvArgs& a);
Cost cost_of(const ConvInputGradArgs& a);
Cost cost_of(const ConvWeightGradArgs& a);
Cost cost_of(const MaxPoolArgs& a);
Cost cost_of(const MaxPoolGradArgs& a);
Cost cost_of(const BatchMomentsArgs& a);
Cost cost_of(const BatchMergeArgs& a);
Cost cost_of(const BatchNormArgs& a);
Cost cost_of(const BatchNormSumsArgs& a);
Cost cost_of(const BatchNormGradArgs& a);

}  // namespace shale::kernels

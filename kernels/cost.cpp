#include "shale/kernels/cost.h"

#include <algorithm>
#include <initializer_list>

#include "shale/kernels/attention_blocks.h"

namespace shale::kernels {
namespace {

double bytes_of(const View& view) {
  return view.defined() ? double(view.bytes()) : 0;
}

double bytes_of(std::initializer_list<View> views) {
  double sum = 0;
  for (const View& view : views) sum += bytes_of(view);
  return sum;
}

Cost traffic(std::initializer_list<View> read, std::initializer_list<View> written) {
  return {.read_bytes = bytes_of(read), .written_bytes = bytes_of(written)};
}

// A result that is accumulated into is also read.
void add_result(Cost& cost, const View& view, bool accumulate) {
  cost.written_bytes += bytes_of(view);
  if (accumulate) cost.read_bytes += bytes_of(view);
}

// Number of (query, key) pairs that the mask does not hide, over all heads.
double visible_pairs(const View& q, const View& k, bool causal, int64_t window) {
  const int64_t queries = q.size(1), keys = k.size(1);
  const int64_t most = window > 0 ? std::min(window, keys) : keys;
  int64_t pairs = queries * keys;
  if (causal) {
    pairs = 0;
    for (int64_t i = 0; i < queries; ++i) {
      pairs += std::clamp<int64_t>(i + 1 + keys - queries, 0, most);
    }
  }
  return double(pairs) * double(q.size(0) * q.size(2));
}

// Like visible_pairs() above, for calls whose tokens are ranges of a longer sequence (TokenPlaces).
template <typename Args>
double visible_pairs_of_runs(const Args& a) {
  const int64_t queries = a.q.size(1), keys = a.k.size(1);
  int64_t pairs = 0;
  for (int64_t i = 0; i < queries; ++i) {
    const int64_t end = a.causal ? std::clamp<int64_t>(i + 1 + keys - queries, 0, keys) : keys;
    const int64_t first =
        a.window > 0 ? a.key_places.before(a.query_places.of(i) + 1 - a.window, keys) : 0;
    pairs += std::max<int64_t>(end - first, 0);
  }
  return double(pairs) * double(a.q.size(0) * a.q.size(2));
}

// With block lists, multiplies the number of pairs by the fraction of blocks that are listed.
template <typename Args>
double visible_pairs(const Args& a) {
  if (a.query_places.run > 0) return visible_pairs_of_runs(a);
  const double pairs = visible_pairs(a.q, a.k, a.causal, a.window);
  if (!a.blocks.defined()) return pairs;
  const int64_t query_blocks = attention_blocks(a.q.size(1));
  const int64_t key_blocks = attention_blocks(a.k.size(1));
  int64_t all = query_blocks * key_blocks;
  if (a.causal) {
    all = 0;
    for (int64_t i = 1; i <= query_blocks; ++i) {
      all += std::clamp<int64_t>(i + key_blocks - query_blocks, 0, key_blocks);
    }
  }
  const auto patterns = double(a.blocks.key_begins.size(0));
  return pairs * std::min(1.0, double(a.blocks.keys.numel()) / (patterns * double(all)));
}

}  // namespace

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  read_bytes += other.read_bytes;
  written_bytes += other.written_bytes;
  return *this;
}

Cost cost_of(const GemmArgs& a) {
  Cost cost = traffic({a.a, a.b, a.b_up, a.bias, a.residual}, {a.c_up});
  cost.flops = 2.0 * double(a.c.size(0)) * double(a.c.size(1)) * double(a.a.size(1));
  if (a.b_up.defined()) cost.flops *= 2;
  add_result(cost, a.c, a.accumulate);
  add_result(cost, a.bias_grad, a.accumulate_bias_grad);
  const bool reads_aux = a.epilogue == Epilogue::kDGeluTanh || a.epilogue == Epilogue::kDGeluErf ||
                         a.epilogue == Epilogue::kDSwiGlu;
  (reads_aux ? cost.read_bytes : cost.written_bytes) += bytes_of({a.aux, a.aux_up});
  return cost;
}

Cost cost_of(const AttentionFwdArgs& a) {
  Cost cost = traffic({a.q, a.k, a.v}, {a.out, a.lse});
  cost.flops = 4.0 * visible_pairs(a) * double(a.q.size(3));
  return cost;
}

Cost cost_of(const AttentionBwdArgs& a) {
  Cost cost = traffic({a.q, a.k, a.v, a.out, a.lse, a.dout}, {a.dq, a.dk, a.dv});
  cost.flops = 10.0 * visible_pairs(a) * double(a.q.size(3));
  return cost;
}

Cost cost_of(const AttentionMergeArgs& a) {
  return traffic({a.sum, a.lse, a.part, a.part_lse}, {a.sum, a.lse});
}

Cost cost_of(const LayerNormFwdArgs& a) {
  return traffic({a.x, a.residual, a.gain, a.bias}, {a.sum, a.y, a.mean, a.rstd});
}

Cost cost_of(const LayerNormBwdArgs& a) {
  Cost cost = traffic({a.dy, a.s, a.gain, a.mean, a.rstd, a.d_sum}, {a.dx});
  add_result(cost, a.dgain, a.accumulate_dgain);
  add_result(cost, a.dbias, a.accumulate_dbias);
  return cost;
}

Cost cost_of(const RmsNormFwdArgs& a) {
  return traffic({a.x, a.residual, a.gain}, {a.sum, a.y, a.rstd});
}

Cost cost_of(const RmsNormBwdArgs& a) {
  Cost cost = traffic({a.dy, a.s, a.gain, a.rstd, a.d_sum}, {a.dx});
  add_result(cost, a.dgain, a.accumulate_dgain);
  return cost;
}

Cost cost_of(const CrossEntropyArgs& a) {
  Cost cost = traffic({a.logits, a.targets}, {a.losses});
  if (a.write_grad) cost.written_bytes += bytes_of(a.logits);
  return cost;
}

Cost cost_of(const CrossEntropyStatsArgs& a) {
  return traffic({a.logits, a.targets}, {a.stats});
}

Cost cost_of(const CrossEntropyGradArgs& a) {
  Cost cost = traffic({a.targets, a.stats}, {});
  if (a.losses.defined()) cost.written_bytes += bytes_of(a.losses);
  if (!a.write_grad) return cost;
  cost.read_bytes += bytes_of(a.logits);
  cost.written_bytes += bytes_of(a.logits);
  return cost;
}

Cost cost_of(const EmbeddingFwdArgs& a) {
  Cost cost = traffic({a.ids}, {a.y});
  cost.read_bytes += bytes_of(a.y);  // the kernel reads one table row per token
  if (a.positions.defined()) {
    cost.read_bytes += double(a.ids.size(1) * a.y.size(-1) * dtype_size(a.positions.dtype));
  }
  return cost;
}

Cost cost_of(const EmbeddingBwdArgs& a) {
  Cost cost = traffic({a.ids, a.dy}, {});
  const double row_bytes = double(a.dy.size(-1)) * 4;  // gradients are f32
  const auto add = [&](const View& grad, bool accumulate, int64_t rows) {
    if (!grad.defined()) return;
    const double touched = double(rows) * row_bytes;
    if (accumulate) cost.read_bytes += touched;
    cost.written_bytes += accumulate ? touched : bytes_of(grad);
  };
  add(a.d_table, a.accumulate_table, a.ids.numel());
  add(a.d_positions, a.accumulate_positions, a.ids.size(1));
  return cost;
}

Cost cost_of(const AdamWArgs& a) {
  return traffic({a.master, a.grad, a.m, a.v}, {a.master, a.m, a.v, a.param});
}

Cost cost_of(const AdamW8bitArgs& a) {
  return traffic({a.master, a.grad, a.m, a.v, a.m_scale, a.v_scale},
                 {a.master, a.m, a.v, a.m_scale, a.v_scale, a.param});
}

Cost cost_of(const LionArgs& a) {
  return traffic({a.master, a.grad, a.m}, {a.master, a.m, a.param});
}

Cost cost_of(const AdafactorMeansArgs& a) {
  return traffic({a.grad, a.row_mean, a.col_mean}, {a.row_mean, a.col_mean});
}

Cost cost_of(const AdafactorAverageArgs& a) {
  return traffic({a.newest, a.mean}, {a.mean});
}

Cost cost_of(const AdafactorSquaresArgs& a) {
  return traffic({a.grad, a.row, a.col, a.v, a.sum}, {a.v, a.sum});
}

Cost cost_of(const AdafactorArgs& a) {
  return traffic({a.master, a.grad, a.row, a.col, a.v, a.square_sum}, {a.master, a.param});
}

Cost cost_of(const MuonMomentumArgs& a) {
  return traffic({a.grad, a.m}, {a.m, a.update});
}

Cost cost_of(const InverseNormArgs& a) {
  return {.read_bytes = sizeof(FixedSum), .written_bytes = bytes_of(a.y)};
}

Cost cost_of(const MuonArgs& a) {
  return traffic({a.master, a.update}, {a.master, a.param});
}

Cost cost_of(const SgdArgs& a) {
  return traffic({a.master, a.grad, a.m}, {a.master, a.m, a.param});
}

Cost cost_of(const WeightAverageArgs& a) {
  return traffic({a.master, a.average}, {a.average});
}

Cost cost_of(const SignPackArgs& a) {
  return traffic({a.value, a.grad, a.mask, a.owed}, {a.owed, a.packed});
}

Cost cost_of(const SignMeanArgs& a) {
  return traffic({a.parts, a.mask, a.owed}, {a.owed, a.packed});
}

Cost cost_of(const SignUnpackArgs& a) {
  return traffic({a.packed, a.mask}, {a.value});
}

Cost cost_of(const AxpbyArgs& a) {
  return traffic({a.a, a.b}, {a.y});
}
Cost cost_of(const MulArgs& a) {
  return traffic({a.a, a.b}, {a.y});
}
Cost cost_of(const FillArgs& a) {
  return traffic({}, {a.y});
}
Cost cost_of(const CopyArgs& a) {
  return traffic({a.x}, {a.y});
}
Cost cost_of(const GeluFwdArgs& a) {
  return traffic({a.x}, {a.y});
}
Cost cost_of(const GeluBwdArgs& a) {
  return traffic({a.x, a.dy}, {a.dx});
}
Cost cost_of(const SwiGluFwdArgs& a) {
  return traffic({a.gate, a.up}, {a.y});
}
Cost cost_of(const DropoutArgs& a) {
  return traffic({a.x, a.residual}, {a.y});
}
Cost cost_of(const RopeArgs& a) {
  return traffic({a.x, a.positions}, {a.y});
}
Cost cost_of(const SumArgs& a) {
  return traffic({a.x}, {a.y});
}
Cost cost_of(const SumSquaresArgs& a) {
  return traffic({a.x}, {});
}
Cost cost_of(const ClipFactorArgs& a) {
  // clip_factor writes three 4-byte values: gradient norm, clip factor and non_finite.
  return {.read_bytes = double(a.parts) * sizeof(FixedSum), .written_bytes = 12};
}
Cost cost_of(const LossScaleArgs&) {
  return {.read_bytes = sizeof(LossScale) + 4, .written_bytes = sizeof(LossScale)};
}
Cost cost_of(const SkipOutlierArgs& a) {
  return traffic({a.norms, a.count}, {a.count});
}
Cost cost_of(const RandomNormalArgs& a) {
  return traffic({}, {a.y});
}

Cost cost_of(const ColumnSumArgs& a) {
  Cost cost = traffic({a.x}, {});
  add_result(cost, a.y, a.accumulate);
  return cost;
}

Cost cost_of(const TreeSumArgs& a) {
  const double count = double(a.count);
  return {.read_bytes = count * double(a.inputs.size()) * double(dtype_size(a.in_dtype)),
          .written_bytes = count * double(a.outputs.size()) * double(dtype_size(a.out_dtype))};
}

namespace {

// Returns the bytes of the elements in memory: broadcast elements count once.
double bytes_in_memory(const View& view) {
  double elements = 1;
  for (int d = 0; d < view.ndim(); ++d) {
    if (view.strides[d] != 0) elements *= double(view.shape[d]);
  }
  return elements * double(dtype_size(view.dtype));
}

}  // namespace

Cost cost_of(const PointwiseArgs& a) {
  Cost cost;
  for (int i = 0; i < a.program->inputs; ++i) {
    if (a.program->loads(i)) cost.read_bytes += bytes_in_memory(a.inputs[size_t(i)]);
  }
  for (int i = 0; i < a.program->outputs; ++i) cost.written_bytes += bytes_of(a.outputs[size_t(i)]);
  return cost;
}

Cost cost_of(const ReduceDimsArgs& a) {
  return traffic({a.x}, {a.y});
}

Cost cost_of(const SoftmaxFwdArgs& a) {
  return traffic({a.x}, {a.y});
}

Cost cost_of(const SoftmaxBwdArgs& a) {
  return traffic({a.y, a.dy}, {a.dx});
}

Cost cost_of(const DecodeBlocksArgs& a) {
  return traffic({a.x}, {a.y});
}

Cost cost_of(const EncodeBlocksArgs& a) {
  return traffic({a.x}, {a.y});
}

Cost cost_of(const QuantizeFp8Args& a) {
  return traffic({a.x}, {a.rows.codes, a.rows.scales, a.columns.codes, a.columns.scales});
}

Cost cost_of(const Fp8GemmArgs& a) {
  Cost cost = traffic({a.a.codes, a.a.scales, a.b.codes, a.b.scales, a.bias, a.residual}, {});
  cost.flops = 2.0 * double(a.a.lines()) * double(a.b.lines()) * double(a.a.length());
  add_result(cost, a.c, a.accumulate);
  return cost;
}

Cost cost_of(const Fp8LargestArgs& a) {
  return traffic({a.x, a.largest}, {a.largest});
}

Cost cost_of(const Fp8EncodeArgs& a) {
  return traffic({a.x, a.largest}, {a.codes});
}

Cost cost_of(const Fp8DecodeArgs& a) {
  return traffic({a.codes, a.largest}, {a.y});
}

Cost cost_of(const Fp8OperandsArgs& a) {
  Cost cost = traffic({a.largest}, {a.rows.scales, a.columns.codes, a.columns.scales});
  const bool copies = a.rows.defined() && a.rows.codes.data != a.codes.data;
  if (copies || a.columns.defined()) cost.read_bytes += bytes_of(a.codes);
  if (copies) cost.written_bytes += bytes_of(a.rows.codes);
  return cost;
}

Cost cost_of(const GatherArgs& a) {
  Cost cost = traffic({a.y}, {a.y});  // the gathered elements are read
  cost.read_bytes += bytes_in_memory(a.index);
  return cost;
}

Cost cost_of(const ScatterAddArgs& a) {
  Cost cost = traffic({a.x}, {});
  cost.read_bytes += bytes_in_memory(a.index);
  const double touched = double(a.x.numel()) * double(dtype_size(a.y.dtype));
  cost.read_bytes += touched;
  cost.written_bytes += touched;
  return cost;
}

Cost cost_of(const GroupedGemmArgs& a) {
  Cost cost = traffic({a.a, a.b, a.b_up, a.offsets}, {});
  const bool is_forward = a.epilogue == Epilogue::kSwiGlu;
  const bool by_rows = a.by == GroupedBy::kRows;
  const int64_t rows = by_rows ? a.a.size(0) : a.a.size(1);
  const int64_t other = by_rows ? a.a.size(1) : a.a.size(0);
  cost.flops = (is_forward ? 4.0 : 2.0) * double(rows) * double(other) * double(a.b.size(-1));
  add_result(cost, a.c, a.accumulate);
  cost.written_bytes += bytes_of(a.c_up);
  (is_forward ? cost.written_bytes : cost.read_bytes) += bytes_of({a.aux, a.aux_up});
  return cost;
}

Cost cost_of(const MoeRouteFwdArgs& a) {
  return traffic({a.logits, a.bias}, {a.weights, a.experts});
}
Cost cost_of(const MoeRouteBwdArgs& a) {
  return traffic({a.logits, a.experts, a.counts, a.d_weights}, {a.d_logits});
}
Cost cost_of(const MoeSortArgs& a) {
  Cost cost = traffic({a.experts}, {a.counts, a.offsets, a.rows, a.sources});
  add_result(cost, a.loads, true);
  return cost;
}
Cost cost_of(const MoeBalanceArgs& a) {
  Cost cost = traffic({a.loads}, {});
  add_result(cost, a.bias, true);
  return cost;
}
Cost cost_of(const MoePermuteArgs& a) {
  return traffic({a.y, a.sources, a.weights}, {a.y});  // reads one row for each written row
}
Cost cost_of(const MoeCombineArgs& a) {
  Cost cost = traffic({a.rows, a.weights, a.residual}, {a.y});
  cost.read_bytes += bytes_of(a.y) * double(a.rows.size(1));
  return cost;
}
Cost cost_of(const MoeDotsArgs& a) {
  Cost cost = traffic({a.x, a.rows}, {a.dots});
  cost.read_bytes += bytes_of(a.x) * double(a.rows.size(1));
  return cost;
}

namespace {

double conv_flops(const View& y, const View& weight) {
  return 2.0 * double(y.numel()) * double(weight.numel() / weight.size(0));
}

}  // namespace

Cost cost_of(const ConvArgs& a) {
  Cost cost = traffic({a.x, a.weight, a.bias}, {a.y});
  cost.flops = conv_flops(a.y, a.weight);
  return cost;
}
Cost cost_of(const ConvInputGradArgs& a) {
  Cost cost = traffic({a.dy, a.weight}, {a.dx});
  cost.flops = conv_flops(a.dy, a.weight);
  return cost;
}
Cost cost_of(const ConvWeightGradArgs& a) {
  Cost cost = traffic({a.dy, a.x}, {});
  add_result(cost, a.dweight, a.accumulate);
  cost.flops = conv_flops(a.dy, a.dweight);
  return cost;
}
Cost cost_of(const MaxPoolArgs& a) {
  return traffic({a.x}, {a.y, a.place});
}
Cost cost_of(const MaxPoolGradArgs& a) {
  return traffic({a.dy, a.place}, {a.dx});
}
Cost cost_of(const BatchMomentsArgs& a) {
  return traffic({a.x}, {a.moments});
}
Cost cost_of(const BatchMergeArgs& a) {
  Cost cost = traffic({a.moments}, {a.mean, a.rstd, a.count});
  add_result(cost, a.running_mean, true);
  add_result(cost, a.running_variance, true);
  return cost;
}
Cost cost_of(const BatchNormArgs& a) {
  return traffic({a.x, a.mean, a.rstd, a.gain, a.bias, a.residual}, {a.y});
}
Cost cost_of(const BatchNormSumsArgs& a) {
  Cost cost = traffic({a.dy, a.x, a.y, a.mean, a.rstd}, {a.sums});
  add_result(cost, a.dgain, a.accumulate_dgain);
  add_result(cost, a.dbias, a.accumulate_dbias);
  return cost;
}
Cost cost_of(const BatchNormGradArgs& a) {
  return traffic({a.dy, a.x, a.y, a.mean, a.rstd, a.gain, a.sums, a.count}, {a.dx, a.d_residual});
}

}  // namespace shale::kernels

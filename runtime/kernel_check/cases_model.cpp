#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {

void Cases::add_norms() {
  const int64_t T = s_.tokens(), C = s_.width;
  const DType dtype = dtype_;
  const auto forward = [=](Operands& o, bool residual) {
    kernels::LayerNormFwdArgs args{.x = o.floats(dtype, {T, C}),
                                   .gain = o.floats(dtype, {C}),
                                   .bias = o.floats(dtype, {C}),
                                   .y = o.zeros(dtype, {T, C}),
                                   .mean = o.zeros(DType::kF32, {T}),
                                   .rstd = o.zeros(DType::kF32, {T})};
    if (residual) args.residual = o.floats(dtype, {T, C});
    if (residual) args.sum = o.zeros(dtype, {T, C});
    return args;
  };
  add<kernels::LayerNormFwdArgs>("", kernels::layer_norm_fwd,
                                 [=](Operands& o) { return forward(o, false); });
  add<kernels::LayerNormFwdArgs>("residual", kernels::layer_norm_fwd,
                                 [=](Operands& o) { return forward(o, true); });
  add<kernels::LayerNormBwdArgs>("residual", kernels::layer_norm_bwd, [=](Operands& o) {
    return kernels::LayerNormBwdArgs{.dy = o.floats(dtype, {T, C}),
                                     .s = o.floats(dtype, {T, C}),
                                     .gain = o.floats(dtype, {C}),
                                     .mean = o.zeros(DType::kF32, {T}),
                                     .rstd = o.floats(DType::kF32, {T}),
                                     .d_sum = o.floats(dtype, {T, C}),
                                     .dx = o.zeros(dtype, {T, C}),
                                     .dgain = o.zeros(DType::kF32, {C}),
                                     .dbias = o.zeros(DType::kF32, {C}),
                                     .accumulate_dgain = true,
                                     .accumulate_dbias = true};
  });
  add<kernels::RmsNormFwdArgs>("residual", kernels::rms_norm_fwd, [=](Operands& o) {
    return kernels::RmsNormFwdArgs{.x = o.floats(dtype, {T, C}),
                                   .residual = o.floats(dtype, {T, C}),
                                   .sum = o.zeros(dtype, {T, C}),
                                   .gain = o.floats(dtype, {C}),
                                   .y = o.zeros(dtype, {T, C}),
                                   .rstd = o.zeros(DType::kF32, {T})};
  });
  add<kernels::RmsNormBwdArgs>("residual", kernels::rms_norm_bwd, [=](Operands& o) {
    return kernels::RmsNormBwdArgs{.dy = o.floats(dtype, {T, C}),
                                   .s = o.floats(dtype, {T, C}),
                                   .gain = o.floats(dtype, {C}),
                                   .rstd = o.floats(DType::kF32, {T}),
                                   .d_sum = o.floats(dtype, {T, C}),
                                   .dx = o.zeros(dtype, {T, C}),
                                   .dgain = o.zeros(DType::kF32, {C}),
                                   .accumulate_dgain = true};
  });
}

void Cases::add_tokens() {
  const int64_t T = s_.tokens(), C = s_.width, B = s_.batch, S = s_.seq;
  const int64_t V = s_.vocab, padded = s_.padded_vocab;
  const DType dtype = dtype_;
  for (const bool write_grad : {true, false}) {
    add<kernels::CrossEntropyArgs>(
        write_grad ? "grad" : "loss_only", kernels::cross_entropy, [=](Operands& o) {
          return kernels::CrossEntropyArgs{.logits = o.floats(dtype, {T, padded}, 4),
                                           .targets = o.integers({T}, V),
                                           .losses = o.zeros(DType::kF32, {T}),
                                           .vocab = V,
                                           .write_grad = write_grad};
        });
  }
  // A shard has a quarter of the vocabulary.
  const int64_t part = padded / 4;
  add<kernels::CrossEntropyStatsArgs>("quarter", kernels::cross_entropy_stats, [=](Operands& o) {
    return kernels::CrossEntropyStatsArgs{.logits = o.floats(dtype, {T, part}, 4),
                                          .targets = o.integers({T}, V),
                                          .stats = o.zeros(DType::kF32, {T, 3}),
                                          .vocab = V};
  });
  add<kernels::CrossEntropyGradArgs>("quarter", kernels::cross_entropy_grad, [=](Operands& o) {
    return kernels::CrossEntropyGradArgs{
        .logits = o.zeros(dtype, {T, part}),
        .targets = o.integers({T}, V),
        // Per row: the maximum, the sum of exponentials, and the target's logit, which must equal
        // that of `logits`.
        .stats = o.values({4, T, 3},
                          [](int64_t i) {
                            return i % 3 == 0 ? 4.0f : i % 3 == 1 ? float(1 + i % 7) : 0.0f;
                          }),
        .losses = o.zeros(DType::kF32, {T}),
        .vocab = V};
  });
  add<kernels::EmbeddingFwdArgs>("", kernels::embedding_fwd, [=](Operands& o) {
    return kernels::EmbeddingFwdArgs{.ids = o.integers({B, S}, V),
                                     .table = o.shared("table", dtype, {padded, C}),
                                     .positions = o.floats(dtype, {S, C}),
                                     .y = o.zeros(dtype, {B, S, C})};
  });
  add<kernels::EmbeddingBwdArgs>("accumulate", kernels::embedding_bwd, [=](Operands& o) {
    return kernels::EmbeddingBwdArgs{.ids = o.integers({B, S}, V),
                                     .dy = o.floats(dtype, {B, S, C}),
                                     .d_table = o.shared("d_table", DType::kF32, {padded, C}),
                                     .d_positions = o.zeros(DType::kF32, {S, C}),
                                     .accumulate_table = true,
                                     .accumulate_positions = true};
  });
}

void Cases::add_elementwise() {
  const int64_t B = s_.batch, S = s_.seq, T = s_.tokens(), C = s_.width, H = s_.heads;
  const DType dtype = dtype_;
  add<kernels::GeluFwdArgs>("tanh", kernels::gelu_fwd, [=](Operands& o) {
    return kernels::GeluFwdArgs{.x = o.floats(dtype, {T, 4 * C}, 3),
                                .y = o.zeros(dtype, {T, 4 * C})};
  });
  add<kernels::GeluBwdArgs>("tanh", kernels::gelu_bwd, [=](Operands& o) {
    return kernels::GeluBwdArgs{.x = o.floats(dtype, {T, 4 * C}, 3),
                                .dy = o.floats(dtype, {T, 4 * C}),
                                .dx = o.zeros(dtype, {T, 4 * C})};
  });
  add<kernels::DropoutArgs>("residual", kernels::dropout, [=](Operands& o) {
    return kernels::DropoutArgs{.x = o.floats(dtype, {B, S, C}),
                                .residual = o.floats(dtype, {B, S, C}),
                                .y = o.zeros(dtype, {B, S, C}),
                                .p = 0.1f,
                                .site = 1};
  });
  add<kernels::DecodeBlocksArgs>("NF4", kernels::decode_blocks, [=](Operands& o) {
    const int64_t bytes = kernels::coded_row_bytes(kernels::BlockCode::kNf4, C / 64 * 64);
    return kernels::DecodeBlocksArgs{.x = o.codes({4 * C, bytes}),
                                     .y = o.zeros(dtype, {4 * C, C / 64 * 64}),
                                     .code = kernels::BlockCode::kNf4};
  });
  add<kernels::EncodeBlocksArgs>("NF4", kernels::encode_blocks, [=](Operands& o) {
    const int64_t bytes = kernels::coded_row_bytes(kernels::BlockCode::kNf4, C / 64 * 64);
    return kernels::EncodeBlocksArgs{.x = o.floats(dtype, {4 * C, C / 64 * 64}),
                                     .y = o.zeros(DType::kU8, {4 * C, bytes}),
                                     .code = kernels::BlockCode::kNf4};
  });
  static const std::vector<uint64_t> turns(kernels::kMaxRopeHeadSize / 2, uint64_t{1} << 60);
  add<kernels::RopeArgs>("in place", kernels::rope, [=](Operands& o) {
    const View x = o.floats(dtype, {B, S, H, C / H});
    return kernels::RopeArgs{.x = x, .y = x, .turns = turns.data()};
  });
  add<kernels::AxpbyArgs>("add", kernels::axpby, [=](Operands& o) {
    return kernels::AxpbyArgs{
        .a = o.floats(dtype, {T, C}), .b = o.floats(dtype, {T, C}), .y = o.zeros(dtype, {T, C})};
  });
  add<kernels::MulArgs>("", kernels::mul, [=](Operands& o) {
    return kernels::MulArgs{
        .a = o.floats(dtype, {T, C}), .b = o.floats(dtype, {T, C}), .y = o.zeros(dtype, {T, C})};
  });
  add<kernels::ColumnSumArgs>("accumulate", kernels::column_sum, [=](Operands& o) {
    return kernels::ColumnSumArgs{
        .x = o.floats(dtype, {T, 3 * C}), .y = o.zeros(DType::kF32, {3 * C}), .accumulate = true};
  });
  // Copies some columns of a packed qkv tensor, as a KV cache does.
  add<kernels::CopyArgs>("strided", kernels::copy, [=](Operands& o) {
    View x = o.floats(dtype, {T, 3 * C});
    x.shape[1] = C;
    return kernels::CopyArgs{.x = x, .y = o.zeros(dtype, {T, C})};
  });
}

}  // namespace shale::kernel_check

#include "bench/support/kernel_cases.h"

#include <cmath>
#include <utility>

#include "kernels/slot.h"

// T tokens of a batch (B sequences of S), C width, H heads, D = C / H, V vocabulary.
namespace shale::bench {
namespace {

using kernels::Epilogue;

struct Size {
  std::string label;
  int64_t batch, seq, width, heads, vocab, padded_vocab;
  int64_t tokens() const { return batch * seq; }
};

const Size kSizes[] = {{"1024", 4, 256, 768, 12, 50257, 50304},
                       {"2048", 2, 1024, 768, 12, 50257, 50304},
                       {"nano", 8, 256, 128, 4, 256, 256}};
constexpr int64_t kBlockElements = 7087872;  // parameters of one block of GPT-2 124M

// Collects cases of one size and dtype.
class Cases {
 public:
  Cases(const Size& size, DType dtype, std::vector<KernelCase>& out)
      : s_(size), dtype_(dtype), out_(out) {}

  void add_gemms();
  void add_attention();
  void add_norms();
  void add_tokens();
  void add_elementwise();

 private:
  template <typename Args>
  void add(const std::string& variant, const kernels::Slot<Args>& slot,
           std::function<Args(Operands&)> make) {
    out_.push_back(make_case<Args>(named(variant), slot, dtype_, std::move(make)));
  }
  std::string named(const std::string& variant) const {
    return (variant.empty() ? "" : variant + "/") + s_.label + "/" +
           std::string(dtype_name(dtype_));
  }
  void add_linear(const std::string& name, int64_t in, int64_t out, bool bias, bool residual,
                  bool gelu);

  Size s_;
  DType dtype_;
  std::vector<KernelCase>& out_;
};

View transposed(View view) {
  std::swap(view.shape[0], view.shape[1]);
  std::swap(view.strides[0], view.strides[1]);
  return view;
}

// The three products of a layer with weights [out, in], with the epilogues that GPT-2 gives them.
void Cases::add_linear(const std::string& name, int64_t in, int64_t out, bool bias, bool residual,
                       bool gelu) {
  const int64_t T = s_.tokens();
  const DType dtype = dtype_;
  out_.push_back(make_gemm_case("forward_" + name + "/" + named(""), dtype, [=](Operands& o) {
    kernels::GemmArgs args{.a = o.floats(dtype, {T, in}),
                           .b = transposed(o.floats(dtype, {out, in}, 0.03)),
                           .c = o.zeros(dtype, {T, out})};
    if (bias) args.bias = o.floats(dtype, {out});
    if (residual) args.residual = o.floats(dtype, {T, out});
    if (gelu) args.epilogue = Epilogue::kGeluTanh;
    if (gelu) args.aux = o.zeros(dtype, {T, out});
    return args;
  }));
  out_.push_back(make_gemm_case("dx_" + name + "/" + named(""), dtype, [=](Operands& o) {
    return kernels::GemmArgs{.a = o.floats(dtype, {T, out}),
                             .b = o.floats(dtype, {out, in}, 0.03),
                             .c = o.zeros(dtype, {T, in})};
  }));
  out_.push_back(make_gemm_case("dw_" + name + "/" + named(""), dtype, [=](Operands& o) {
    return kernels::GemmArgs{.a = transposed(o.floats(dtype, {T, out})),
                             .b = o.floats(dtype, {T, in}),
                             .c = o.zeros(DType::kF32, {out, in}),
                             .accumulate = true};
  }));
}

void Cases::add_gemms() {
  const int64_t T = s_.tokens(), C = s_.width;
  add_linear("qkv", C, 3 * C, true, false, false);
  add_linear("attn_proj", C, C, true, true, false);
  add_linear("fc_gelu", C, 4 * C, true, false, true);
  add_linear("mlp_proj", 4 * C, C, true, true, false);
  add_linear("logits", C, s_.padded_vocab, false, false, false);
  // Backward of the layer behind the GELU, with the GELU's own and its bias gradient.
  out_.push_back(make_gemm_case("dx_dgelu/" + named(""), dtype_,
                                [T, C, dtype = dtype_](Operands& o) {
    return kernels::GemmArgs{.a = o.floats(dtype, {T, C}),
                             .b = o.floats(dtype, {C, 4 * C}, 0.03),
                             .c = o.zeros(dtype, {T, 4 * C}),
                             .epilogue = Epilogue::kDGeluTanh,
                             .aux = o.floats(dtype, {T, 4 * C}),
                             .bias_grad = o.zeros(DType::kF32, {4 * C})};
  }));
}

void Cases::add_attention() {
  const int64_t B = s_.batch, S = s_.seq, H = s_.heads, D = s_.width / s_.heads;
  const DType dtype = dtype_;
  // Slices of one [B, S, 3, H, D] tensor, as in the model.
  const auto part = [=](const View& qkv, int64_t index) {
    View view = qkv;
    view.data = static_cast<char*>(qkv.data) + index * H * D * dtype_size(dtype);
    view.shape = {B, S, H, D};
    view.strides = {S * 3 * H * D, 3 * H * D, D, 1};
    return view;
  };
  const float scale = 1.0f / std::sqrt(float(D));
  add<kernels::AttentionFwdArgs>("causal", kernels::attention_fwd, [=](Operands& o) {
    const View qkv = o.floats(dtype, {B, S, 3 * H * D}, 2);
    return kernels::AttentionFwdArgs{.q = part(qkv, 0), .k = part(qkv, 1), .v = part(qkv, 2),
                                     .out = o.zeros(dtype, {B, S, H, D}),
                                     .lse = o.zeros(DType::kF32, {B, H, S}),
                                     .scale = scale, .causal = true};
  });
  add<kernels::AttentionBwdArgs>("causal", kernels::attention_bwd, [=](Operands& o) {
    const View qkv = o.floats(dtype, {B, S, 3 * H * D}, 2);
    const View grad = o.zeros(dtype, {B, S, 3 * H * D});
    const View lse = o.zeros(DType::kF32, {B, H, S});
    // A row of the softmax sums to about one, as it would after forward.
    for (int64_t i = 0; i < lse.numel(); ++i) {
      lse.as<float>()[i] = std::log(float(i % S + 1));
    }
    return kernels::AttentionBwdArgs{.q = part(qkv, 0), .k = part(qkv, 1), .v = part(qkv, 2),
                                     .out = o.floats(dtype, {B, S, H, D}), .lse = lse,
                                     .dout = o.floats(dtype, {B, S, H, D}),
                                     .dq = part(grad, 0), .dk = part(grad, 1),
                                     .dv = part(grad, 2), .scale = scale, .causal = true};
  });
}

void Cases::add_norms() {
  const int64_t T = s_.tokens(), C = s_.width;
  const DType dtype = dtype_;
  const auto forward = [=](Operands& o, bool residual) {
    kernels::LayerNormFwdArgs args{.x = o.floats(dtype, {T, C}), .gain = o.floats(dtype, {C}),
                                   .bias = o.floats(dtype, {C}), .y = o.zeros(dtype, {T, C}),
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
    return kernels::LayerNormBwdArgs{.dy = o.floats(dtype, {T, C}), .s = o.floats(dtype, {T, C}),
                                     .gain = o.floats(dtype, {C}),
                                     .mean = o.zeros(DType::kF32, {T}),
                                     .rstd = o.floats(DType::kF32, {T}),
                                     .d_sum = o.floats(dtype, {T, C}),
                                     .dx = o.zeros(dtype, {T, C}),
                                     .dgain = o.zeros(DType::kF32, {C}),
                                     .dbias = o.zeros(DType::kF32, {C}),
                                     .accumulate_dgain = true, .accumulate_dbias = true};
  });
}

void Cases::add_tokens() {
  const int64_t T = s_.tokens(), C = s_.width, B = s_.batch, S = s_.seq;
  const int64_t V = s_.vocab, padded = s_.padded_vocab;
  const DType dtype = dtype_;
  for (const bool write_grad : {true, false}) {
    add<kernels::CrossEntropyArgs>(write_grad ? "grad" : "loss_only", kernels::cross_entropy,
                                   [=](Operands& o) {
      return kernels::CrossEntropyArgs{.logits = o.floats(dtype, {T, padded}, 4),
                                       .targets = o.integers({T}, V),
                                       .losses = o.zeros(DType::kF32, {T}),
                                       .vocab = V, .write_grad = write_grad};
    });
  }
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
                                     .accumulate_table = true, .accumulate_positions = true};
  });
}

void Cases::add_elementwise() {
  const int64_t B = s_.batch, S = s_.seq, T = s_.tokens(), C = s_.width;
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
                                .y = o.zeros(dtype, {B, S, C}), .p = 0.1f, .site = 1};
  });
  add<kernels::AxpbyArgs>("add", kernels::axpby, [=](Operands& o) {
    return kernels::AxpbyArgs{.a = o.floats(dtype, {T, C}), .b = o.floats(dtype, {T, C}),
                              .y = o.zeros(dtype, {T, C})};
  });
  add<kernels::MulArgs>("", kernels::mul, [=](Operands& o) {
    return kernels::MulArgs{.a = o.floats(dtype, {T, C}), .b = o.floats(dtype, {T, C}),
                            .y = o.zeros(dtype, {T, C})};
  });
  add<kernels::ColumnSumArgs>("accumulate", kernels::column_sum, [=](Operands& o) {
    return kernels::ColumnSumArgs{.x = o.floats(dtype, {T, 3 * C}),
                                  .y = o.zeros(DType::kF32, {3 * C}), .accumulate = true};
  });
  // Out of the middle of a packed tensor, as a sliced key is copied into a cache.
  add<kernels::CopyArgs>("strided", kernels::copy, [=](Operands& o) {
    View x = o.floats(dtype, {T, 3 * C});
    x.shape[1] = C;
    return kernels::CopyArgs{.x = x, .y = o.zeros(dtype, {T, C})};
  });
}

// What works on flat buffers of parameters: one block's worth.
class FlatCases {
 public:
  FlatCases(DType dtype, std::vector<KernelCase>& out) : dtype_(dtype), out_(out) {}
  void add_optimizers();
  void add_reductions();
  void add_rest();

 private:
  template <typename Args>
  void add(const std::string& variant, const kernels::Slot<Args>& slot,
           std::function<Args(Operands&)> make) {
    const std::string prefix = variant.empty() ? "" : variant + "/";
    out_.push_back(make_case<Args>(prefix + "block/" + std::string(dtype_name(dtype_)), slot,
                                   dtype_, std::move(make)));
  }
  DType dtype_;
  std::vector<KernelCase>& out_;
};

void FlatCases::add_optimizers() {
  const DType dtype = dtype_;
  const Shape n = {kBlockElements};
  constexpr DType kF32 = DType::kF32;
  const auto compute = [=](Operands& o) { return dtype == kF32 ? View{} : o.zeros(dtype, n); };
  add<kernels::AdamWArgs>("", kernels::adamw, [=](Operands& o) {
    return kernels::AdamWArgs{.master = o.floats(kF32, n), .grad = o.floats(kF32, n),
                              .m = o.zeros(kF32, n), .v = o.zeros(kF32, n), .param = compute(o),
                              .weight_decay = 0.1f};
  });
  add<kernels::SgdArgs>("momentum", kernels::sgd, [=](Operands& o) {
    return kernels::SgdArgs{.master = o.floats(kF32, n), .grad = o.floats(kF32, n),
                            .m = o.zeros(kF32, n), .param = compute(o), .momentum = 0.9f};
  });
}

void FlatCases::add_reductions() {
  const DType dtype = dtype_;
  const Shape n = {kBlockElements};
  add<kernels::SumSquaresArgs>("", kernels::sum_squares, [=](Operands& o) {
    return kernels::SumSquaresArgs{
        .x = o.floats(dtype, n),
        .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum)))};
  });
  add<kernels::TreeSumArgs>("2_ranks", kernels::tree_sum, [=](Operands& o) {
    auto** pointers = static_cast<void**>(o.raw(2 * sizeof(void*)));
    for (int i = 0; i < 2; ++i) pointers[i] = o.floats(dtype, n).data;
    return kernels::TreeSumArgs{.inputs = {pointers, 2}, .outputs = {pointers, 2},
                                .count = n.numel(), .in_dtype = dtype, .out_dtype = dtype};
  });
}

void FlatCases::add_rest() {
  const DType dtype = dtype_;
  const Shape n = {kBlockElements};
  add<kernels::CopyArgs>("", kernels::copy, [=](Operands& o) {
    return kernels::CopyArgs{.x = o.floats(dtype, n), .y = o.zeros(dtype, n)};
  });
  add<kernels::FillArgs>("", kernels::fill,
                         [=](Operands& o) { return kernels::FillArgs{.y = o.zeros(dtype, n)}; });
  add<kernels::RandomNormalArgs>("", kernels::random_normal, [=](Operands& o) {
    return kernels::RandomNormalArgs{.y = o.zeros(dtype, n), .seed = 1, .stream = 2};
  });
}

// What exists once, whatever the dtype of the model.
void add_single_cases(std::vector<KernelCase>& out) {
  constexpr DType kF32 = DType::kF32;
  const Shape n = {kBlockElements};
  out.push_back(make_case<kernels::SumArgs>("losses/2048/fp32", kernels::sum, kF32,
                                            [](Operands& o) {
    return kernels::SumArgs{.x = o.floats(kF32, {2048}), .y = o.zeros(kF32, {})};
  }));
  out.push_back(make_case<kernels::ClipFactorArgs>("1/fp32", kernels::clip_factor, kF32,
                                                   [](Operands& o) {
    return kernels::ClipFactorArgs{
        .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum))), .max_norm = 1};
  }));
  const auto add_cast = [&](const char* name, DType from, DType to) {
    out.push_back(make_case<kernels::AxpbyArgs>(name, kernels::axpby, DType::kBF16,
                                                [=](Operands& o) {
      return kernels::AxpbyArgs{.a = o.floats(from, n), .y = o.zeros(to, n)};
    }));
  };
  add_cast("cast/block/fp32_to_bf16", kF32, DType::kBF16);
  add_cast("cast/block/bf16_to_fp32", DType::kBF16, kF32);
}

}  // namespace

std::vector<KernelCase> kernel_cases(const std::vector<DType>& dtypes) {
  std::vector<KernelCase> out;
  for (const DType dtype : dtypes) {
    for (const Size& size : kSizes) Cases(size, dtype, out).add_gemms();
    for (const Size& size : kSizes) Cases(size, dtype, out).add_attention();
    for (const Size& size : kSizes) Cases(size, dtype, out).add_norms();
    for (const Size& size : kSizes) Cases(size, dtype, out).add_tokens();
    for (const Size& size : kSizes) Cases(size, dtype, out).add_elementwise();
    FlatCases flat(dtype, out);
    flat.add_optimizers();
    flat.add_reductions();
    flat.add_rest();
  }
  add_single_cases(out);
  return out;
}

}  // namespace shale::bench

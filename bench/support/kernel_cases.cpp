#include "bench/support/kernel_cases.h"

#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "kernels/gemm_plan.h"
#include "kernels/gemm_problem.h"
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

// Of one device type. The sizes of GPT-2 124M are named by their tokens.
struct Sizes {
  std::vector<Size> models;
  int64_t flat;  // elements of a flat buffer of parameters
};

Sizes sizes_for(DeviceType type) {
  constexpr int64_t kBlockElements = 7087872;  // parameters of one block of GPT-2 124M
  switch (type) {
    case DeviceType::kCpu:
      return {{{"1024", 4, 256, 768, 12, 50257, 50304},
               {"2048", 2, 1024, 768, 12, 50257, 50304},
               {"nano", 8, 256, 128, 4, 256, 256}},
              kBlockElements};
    case DeviceType::kCuda:
      return {{{"16384", 16, 1024, 768, 12, 50257, 50304}}, 124475904};  // the whole model at once
    case DeviceType::kEmu: break;
  }
  return {{{"tiny", 2, 24, 64, 1, 100, 128}}, 5000};
}

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
  out_.push_back(
      make_gemm_case("dx_dgelu/" + named(""), dtype_, [T, C, dtype = dtype_](Operands& o) {
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
    return kernels::AttentionFwdArgs{.q = part(qkv, 0),
                                     .k = part(qkv, 1),
                                     .v = part(qkv, 2),
                                     .out = o.zeros(dtype, {B, S, H, D}),
                                     .lse = o.zeros(DType::kF32, {B, H, S}),
                                     .scale = scale,
                                     .causal = true};
  });
  add<kernels::AttentionBwdArgs>("causal", kernels::attention_bwd, [=](Operands& o) {
    const View qkv = o.floats(dtype, {B, S, 3 * H * D}, 2);
    const View grad = o.zeros(dtype, {B, S, 3 * H * D});
    // A row of the softmax sums to about one, as it would after forward.
    const View lse = o.values({B, H, S}, [S](int64_t i) { return std::log(float(i % S + 1)); });
    return kernels::AttentionBwdArgs{.q = part(qkv, 0),
                                     .k = part(qkv, 1),
                                     .v = part(qkv, 2),
                                     .out = o.floats(dtype, {B, S, H, D}),
                                     .lse = lse,
                                     .dout = o.floats(dtype, {B, S, H, D}),
                                     .dq = part(grad, 0),
                                     .dk = part(grad, 1),
                                     .dv = part(grad, 2),
                                     .scale = scale,
                                     .causal = true};
  });
}

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
                                .y = o.zeros(dtype, {B, S, C}),
                                .p = 0.1f,
                                .site = 1};
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
  FlatCases(int64_t elements, DType dtype, std::vector<KernelCase>& out)
      : elements_(elements), dtype_(dtype), out_(out) {}
  void add_optimizers();
  void add_adafactor();
  void add_reductions();
  void add_rest();

 private:
  template <typename Args>
  void add(const std::string& variant, const kernels::Slot<Args>& slot,
           std::function<Args(Operands&)> make, MakeVendorCall<Args> vendor = nullptr) {
    const std::string prefix = variant.empty() ? "" : variant + "/";
    out_.push_back(make_case<Args>(prefix + "flat/" + std::string(dtype_name(dtype_)), slot, dtype_,
                                   std::move(make), std::move(vendor)));
  }
  int64_t elements_;
  DType dtype_;
  std::vector<KernelCase>& out_;
};

void FlatCases::add_optimizers() {
  const DType dtype = dtype_;
  const Shape n = {elements_};
  constexpr DType kF32 = DType::kF32;
  const auto compute = [=](Operands& o) { return dtype == kF32 ? View{} : o.zeros(dtype, n); };
  for (const DType moments : {kF32, DType::kBF16}) {
    const std::string variant = moments == kF32 ? "" : "bf16_moments";
    add<kernels::AdamWArgs>(variant, kernels::adamw, [=](Operands& o) {
      return kernels::AdamWArgs{.master = o.floats(kF32, n),
                                .grad = o.floats(kF32, n),
                                .m = o.zeros(moments, n),
                                .v = o.zeros(moments, n),
                                .param = compute(o),
                                .weight_decay = 0.1f};
    });
    add<kernels::LionArgs>(variant, kernels::lion, [=](Operands& o) {
      return kernels::LionArgs{.master = o.floats(kF32, n),
                               .grad = o.floats(kF32, n),
                               .m = o.zeros(moments, n),
                               .param = compute(o),
                               .weight_decay = 0.1f};
    });
  }
  const Shape scales = {(elements_ + kernels::kMomentBlock - 1) / kernels::kMomentBlock};
  add<kernels::AdamW8bitArgs>("", kernels::adamw_8bit, [=](Operands& o) {
    return kernels::AdamW8bitArgs{.master = o.floats(kF32, n),
                                  .grad = o.floats(kF32, n),
                                  .m = o.zeros(DType::kU8, n),
                                  .v = o.zeros(DType::kU8, n),
                                  .m_scale = o.zeros(kF32, scales),
                                  .v_scale = o.zeros(kF32, scales),
                                  .param = compute(o),
                                  .weight_decay = 0.1f};
  });
  add<kernels::SgdArgs>("momentum", kernels::sgd, [=](Operands& o) {
    return kernels::SgdArgs{.master = o.floats(kF32, n),
                            .grad = o.floats(kF32, n),
                            .m = o.zeros(kF32, n),
                            .param = compute(o),
                            .momentum = 0.9f};
  });
}

// The largest matrix of a block.
void FlatCases::add_adafactor() {
  const DType dtype = dtype_;
  constexpr DType kF32 = DType::kF32;
  const kernels::MatrixPart part{.rows = 3072, .cols = 768};
  const Shape n = {part.rows * part.cols}, rows = {part.rows}, cols = {part.cols};
  add<kernels::AdafactorMeansArgs>("", kernels::adafactor_means, [=](Operands& o) {
    return kernels::AdafactorMeansArgs{.grad = o.floats(kF32, n),
                                       .row_mean = o.zeros(kF32, rows),
                                       .col_mean = o.zeros(kF32, cols),
                                       .part = part};
  });
  add<kernels::AdafactorAverageArgs>("", kernels::adafactor_average, [=](Operands& o) {
    return kernels::AdafactorAverageArgs{.newest = o.zeros(kF32, rows),
                                         .mean = o.zeros(kF32, rows)};
  });
  // Means of zero would make every element a division by zero, which takes no longer.
  add<kernels::AdafactorSquaresArgs>("", kernels::adafactor_squares, [=](Operands& o) {
    return kernels::AdafactorSquaresArgs{.grad = o.floats(kF32, n),
                                         .row = o.zeros(kF32, rows),
                                         .col = o.zeros(kF32, cols),
                                         .sum = o.zeros(kF32, {}),
                                         .part = part};
  });
  add<kernels::AdafactorArgs>("", kernels::adafactor, [=](Operands& o) {
    return kernels::AdafactorArgs{.master = o.floats(kF32, n),
                                  .grad = o.floats(kF32, n),
                                  .row = o.zeros(kF32, rows),
                                  .col = o.zeros(kF32, cols),
                                  .square_sum = o.zeros(kF32, {}),
                                  .param = dtype == kF32 ? View{} : o.zeros(dtype, n),
                                  .part = part};
  });
}

void FlatCases::add_reductions() {
  const DType dtype = dtype_;
  const Shape n = {elements_};
  add<kernels::SumSquaresArgs>("", kernels::sum_squares, [=](Operands& o) {
    return kernels::SumSquaresArgs{
        .x = o.floats(dtype, n),
        .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum)))};
  });
  add<kernels::TreeSumArgs>("2_ranks", kernels::tree_sum, [=](Operands& o) {
    const std::span<void*> pointers = o.host_pointers(2);
    for (void*& pointer : pointers) pointer = o.floats(dtype, n).data;
    return kernels::TreeSumArgs{.inputs = pointers,
                                .outputs = pointers,
                                .count = n.numel(),
                                .in_dtype = dtype,
                                .out_dtype = dtype};
  });
}

void FlatCases::add_rest() {
  const DType dtype = dtype_;
  const Shape n = {elements_};
  add<kernels::CopyArgs>(
      "", kernels::copy,
      [=](Operands& o) {
        return kernels::CopyArgs{.x = o.floats(dtype, n), .y = o.zeros(dtype, n)};
      },
      [](BenchDevice& device, const kernels::CopyArgs&) -> VendorCall<kernels::CopyArgs> {
        if (device.device().type != DeviceType::kCuda) return nullptr;
        return [&device](const kernels::CopyArgs& args) {  // cudaMemcpyAsync
          device.backend().copy(args.y.data, args.x.data, size_t(args.x.bytes()), device.stream());
        };
      });
  add<kernels::FillArgs>("", kernels::fill,
                         [=](Operands& o) { return kernels::FillArgs{.y = o.zeros(dtype, n)}; });
  add<kernels::RandomNormalArgs>("", kernels::random_normal, [=](Operands& o) {
    return kernels::RandomNormalArgs{.y = o.zeros(dtype, n), .seed = 1, .stream = 2};
  });
}

// What exists once, whatever the dtype of the model.
void add_single_cases(int64_t flat, std::vector<KernelCase>& out) {
  constexpr DType kF32 = DType::kF32;
  out.push_back(
      make_case<kernels::SumArgs>("losses/2048/fp32", kernels::sum, kF32, [](Operands& o) {
        return kernels::SumArgs{.x = o.floats(kF32, {2048}), .y = o.zeros(kF32, {})};
      }));
  out.push_back(
      make_case<kernels::ClipFactorArgs>("1/fp32", kernels::clip_factor, kF32, [](Operands& o) {
        return kernels::ClipFactorArgs{
            .sum = static_cast<kernels::FixedSum*>(o.raw(sizeof(kernels::FixedSum))),
            .max_norm = 1};
      }));
  out.push_back(
      make_case<kernels::LossScaleArgs>("1/fp32", kernels::update_loss_scale, kF32,
                                        [](Operands&) { return kernels::LossScaleArgs{}; }));
  const auto add_cast = [&](const char* name, DType from, DType to) {
    out.push_back(
        make_case<kernels::AxpbyArgs>(name, kernels::axpby, DType::kBF16, [=](Operands& o) {
          return kernels::AxpbyArgs{.a = o.floats(from, {flat}), .y = o.zeros(to, {flat})};
        }));
  };
  add_cast("cast/flat/fp32_to_bf16", kF32, DType::kBF16);
  add_cast("cast/flat/bf16_to_fp32", DType::kBF16, kF32);
}

// Products by the portable kernels, where the slot itself would take the vendor's or Hopper's: one case per
// order in memory, a's and b's.
void add_own_gemms(DType dtype, std::vector<KernelCase>& out) {
  for (const auto& [name, a_transposed, b_transposed] :
       {std::tuple{"own_nn", false, false}, {"own_nt", false, true}, {"own_tn", true, false}}) {
    for (const int64_t n : {4096, 8192}) {
      const auto plan = std::make_shared<kernels::GemmPlan>();
      const auto make = [=, a = a_transposed, b = b_transposed](Operands& o) {
        const View left = o.floats(dtype, {n, n}), right = o.floats(dtype, {n, n});
        kernels::GemmArgs args{.a = a ? transposed(left) : left,
                               .b = b ? transposed(right) : right,
                               .c = o.zeros(dtype, {n, n})};
        *plan = kernels::gemm_plan(kernels::gemm_problem(args), {});
        args.plan = plan.get();
        return args;
      };
      out.push_back(make_gemm_case(cat(name, "/", n, "/", dtype_name(dtype)), dtype, make));
    }
  }
}

// Where GPU libraries are usually compared: norms of wide rows, large square products, attention
// with 16384 tokens and 2048 columns in heads of 64 and 128.
void add_gpu_cases(DType dtype, std::vector<KernelCase>& out) {
  Cases({"16384x4096", 1, 16384, 4096, 32, 50257, 50304}, dtype, out).add_norms();
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t seq : {1024, 2048, 4096, 8192}) {
      const Size size{cat("d", head_dim, "/t", seq), 16384 / seq, seq, 2048, 2048 / head_dim, 0, 0};
      Cases(size, dtype, out).add_attention();
    }
  }
  add_own_gemms(dtype, out);
  for (const int64_t n : {4096, 8192}) {
    out.push_back(
        make_gemm_case(cat("square/", n, "/", dtype_name(dtype)), dtype, [=](Operands& o) {
          return kernels::GemmArgs{.a = o.floats(dtype, {n, n}),
                                   .b = transposed(o.floats(dtype, {n, n})),
                                   .c = o.zeros(dtype, {n, n})};
        }));
  }
}

}  // namespace

std::vector<KernelCase> kernel_cases(DeviceType type, const std::vector<DType>& dtypes) {
  const Sizes sizes = sizes_for(type);
  std::vector<KernelCase> out;
  for (const DType dtype : dtypes) {
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_gemms();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_attention();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_norms();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_tokens();
    for (const Size& size : sizes.models) Cases(size, dtype, out).add_elementwise();
    FlatCases flat(sizes.flat, dtype, out);
    flat.add_optimizers();
    flat.add_adafactor();
    flat.add_reductions();
    flat.add_rest();
    if (type == DeviceType::kCuda) add_gpu_cases(dtype, out);
  }
  add_single_cases(sizes.flat, out);
  return out;
}

std::vector<std::string> drop_unfilled(std::vector<KernelCase>& cases, DeviceType type) {
  std::vector<std::string> dropped;
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    if (slot->filled(type)) continue;
    const auto belongs = [&](const KernelCase& one) { return one.slot == slot->name(); };
    if (std::erase_if(cases, belongs) > 0) dropped.emplace_back(slot->name());
  }
  return dropped;
}

}  // namespace shale::bench

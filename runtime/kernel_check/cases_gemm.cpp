#include <memory>

#include "shale/runtime/kernel_check/cases.h"

namespace shale::kernel_check {
namespace {

using kernels::Epilogue;

}  // namespace

// Adds the three GEMMs of a layer with weights [out, in], with GPT-2's epilogues.
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
  // This is the input gradient of the layer after GELU, fused with GELU's derivative and bias
  // gradient.
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

void Cases::add_swiglu() {
  // The hidden width gives the parameter count of a GELU block of width 4 C; it is rounded up as in
  // Llama: 11008 for 4096.
  constexpr int64_t kMultiple = 256;
  const int64_t F = (8 * s_.width / 3 + kMultiple - 1) / kMultiple * kMultiple;
  const int64_t T = s_.tokens(), C = s_.width;
  const DType dtype = dtype_;
  out_.push_back(make_gemm_case("forward_swiglu/" + named(""), dtype, [=](Operands& o) {
    return kernels::GemmArgs{.a = o.floats(dtype, {T, C}),
                             .b = transposed(o.floats(dtype, {F, C}, 0.03)),
                             .c = o.zeros(dtype, {T, F}),
                             .epilogue = Epilogue::kSwiGlu,
                             .aux = o.zeros(dtype, {T, F}),
                             .b_up = transposed(o.floats(dtype, {F, C}, 0.03)),
                             .aux_up = o.zeros(dtype, {T, F})};
  }));
  out_.push_back(make_gemm_case("dx_dswiglu/" + named(""), dtype, [=](Operands& o) {
    return kernels::GemmArgs{.a = o.floats(dtype, {T, C}),
                             .b = o.floats(dtype, {C, F}, 0.03),
                             .c = o.zeros(dtype, {T, F}),
                             .epilogue = Epilogue::kDSwiGlu,
                             .aux = o.floats(dtype, {T, F}, 3),
                             .aux_up = o.floats(dtype, {T, F}),
                             .c_up = o.zeros(dtype, {T, F})};
  }));
  add<kernels::SwiGluFwdArgs>("", kernels::swiglu_fwd, [=](Operands& o) {
    return kernels::SwiGluFwdArgs{.gate = o.floats(dtype, {T, F}, 3),
                                  .up = o.floats(dtype, {T, F}),
                                  .y = o.zeros(dtype, {T, F})};
  });
}

void add_square_gemms(int64_t n, DType dtype, std::vector<KernelCase>& out) {
  const auto add = [&](const std::string& name, bool a, bool b, KernelFamily family) {
    const auto plan = std::make_shared<kernels::GemmPlan>();
    const auto make = [=](Operands& o) {
      const View left = o.floats(dtype, {n, n}), right = o.floats(dtype, {n, n});
      kernels::GemmArgs args{.a = a ? transposed(left) : left,
                             .b = b ? transposed(right) : right,
                             .c = o.zeros(dtype, {n, n})};
      if (family == KernelFamily::kOfDevice) return args;
      *plan = plan_of_family(family, o.device(), args);
      args.plan = plan.get();
      return args;
    };
    out.push_back(
        make_gemm_case(cat(name, "/", n, "/", dtype_name(dtype)), dtype, make, {.family = family}));
  };
  for (const KernelFamily family : {KernelFamily::kPortable, KernelFamily::kHopper}) {
    if (family == KernelFamily::kHopper && dtype == DType::kF32) continue;
    const std::string name = family_name(family);
    add(name + "_nn", false, false, family);
    add(name + "_nt", false, true, family);
    add(name + "_tn", true, false, family);
  }
  add("square", false, true, KernelFamily::kOfDevice);
}

}  // namespace shale::kernel_check

#include <functional>
#include <memory>
#include <utility>

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
  // Adds the input gradient of the layer that follows a GELU, fused with GELU's derivative and the
  // bias gradient.
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
  // The hidden width gives SwiGLU as many parameters as a GELU block of hidden width 4 C has. It is
  // rounded up to a multiple of 256, as in Llama: 11008 for C = 4096.
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

void add_gemm_tiles(int64_t n, DType dtype, std::vector<KernelCase>& out) {
  // M, N and K differ and are not multiples of a tile. The rows of all operands are aligned.
  const int64_t M = n + 8, K = n + 16;
  using Make = std::function<kernels::GemmArgs(Operands&)>;
  const auto nt = [=](Operands& o) {
    return kernels::GemmArgs{.a = o.floats(dtype, {M, K}),
                             .b = transposed(o.floats(dtype, {n, K}, 0.1)),
                             .c = o.zeros(dtype, {M, n})};
  };
  const auto nn = [=](Operands& o) {
    return kernels::GemmArgs{.a = o.floats(dtype, {M, K}),
                             .b = o.floats(dtype, {K, n}, 0.1),
                             .c = o.zeros(dtype, {M, n})};
  };
  const auto output = [=](Operands& o) { return o.zeros(dtype, {M, n}); };
  const auto input = [=](Operands& o) { return o.floats(dtype, {M, n}); };
  const std::pair<const char*, Make> variants[] = {
      {"nt_bias_residual",
       [=](Operands& o) {
         kernels::GemmArgs args = nt(o);
         args.bias = o.floats(dtype, {n}), args.residual = input(o);
         return args;
       }},
      {"nn", nn},
      {"tn_accumulate",
       [=](Operands& o) {
         return kernels::GemmArgs{.a = transposed(o.floats(dtype, {K, M})),
                                  .b = o.floats(dtype, {K, n}, 0.1),
                                  .c = o.values({M, n}, [](int64_t i) { return float(i % 7); }),
                                  .accumulate = true};
       }},
      {"gelu",
       [=](Operands& o) {
         kernels::GemmArgs args = nt(o);
         args.bias = o.floats(dtype, {n}), args.aux = output(o);
         args.epilogue = Epilogue::kGeluTanh;
         return args;
       }},
      {"dgelu",
       [=](Operands& o) {
         kernels::GemmArgs args = nn(o);
         args.aux = input(o), args.bias_grad = o.zeros(DType::kF32, {n});
         args.epilogue = Epilogue::kDGeluTanh;
         return args;
       }},
      {"swiglu",
       [=](Operands& o) {
         kernels::GemmArgs args = nt(o);
         args.aux = output(o), args.aux_up = output(o);
         args.b_up = transposed(o.floats(dtype, {n, K}, 0.1));
         args.epilogue = Epilogue::kSwiGlu;
         return args;
       }},
      {"dswiglu",
       [=](Operands& o) {
         kernels::GemmArgs args = nn(o);
         args.aux = input(o), args.aux_up = input(o), args.c_up = output(o);
         args.epilogue = Epilogue::kDSwiGlu;
         return args;
       }},
  };
  for (int i = 0; i < kernels::kGemmTiles; ++i) {
    const auto tile = kernels::GemmTile(i);
    const auto plan = std::make_shared<kernels::GemmPlan>(
        kernels::GemmPlan{.tile = tile, .cluster = kernels::cluster_blocks(tile)});
    for (const auto& [variant, make] : variants) {
      const auto with_plan = [make = make, plan](Operands& o) {
        kernels::GemmArgs args = make(o);
        args.plan = plan.get();
        return args;
      };
      out.push_back(make_gemm_case(
          cat("tile_", kernels::name_of(tile), "_", variant, "/", n, "/", dtype_name(dtype)), dtype,
          with_plan));
    }
  }
}

}  // namespace shale::kernel_check

#include "shale/kernels/grouped_gemm.h"
#include "shale/kernels/moe.h"
#include "shale/runtime/kernel_check/cases.h"

// Cases of an MoE layer: 8 experts of 2 C hidden columns, 2 active experts per token, balanced.
namespace shale::kernel_check {
namespace {

constexpr int64_t kExperts = 8, kActive = 2, kAlign = 32;

// Returns a function that maps i to a row number in [0, count). Neighbouring i give distant rows,
// like the token ids of a text.
std::function<int32_t(int64_t)> scattered(int64_t count) {
  return [count](int64_t i) { return static_cast<int32_t>(i * 7919 % count); };
}

struct Mixture {
  int64_t tokens, width, hidden, rows;
  DType dtype;

  View experts(Operands& o) const {
    return o.integers({tokens, kActive}, [](int64_t i) {
      const int64_t token = i / kActive, slot = i % kActive;
      return static_cast<int32_t>((token * 5 + token / kExperts + slot * 3) % kExperts);
    });
  }
  View offsets(Operands& o) const {
    return o.integers({kExperts + 1},
                      [this](int64_t e) { return static_cast<int32_t>(e * (rows / kExperts)); });
  }
  View choices(Operands& o) const {  // [N, k] f32: one number per token and active expert
    return o.floats(DType::kF32, {tokens, kActive});
  }
  View row_of_choice(Operands& o) const { return o.integers({tokens, kActive}, scattered(rows)); }
  View matrix(Operands& o, int64_t height, int64_t columns) const {
    return o.floats(dtype, {height, columns});
  }
  View weights(Operands& o, int64_t out, int64_t in) const {
    return o.floats(dtype, {kExperts, out, in}, 0.03);
  }
};

View all_transposed(View matrices) {
  std::swap(matrices.shape[1], matrices.shape[2]);
  std::swap(matrices.strides[1], matrices.strides[2]);
  return matrices;
}

}  // namespace

void Cases::add_experts() {
  const int64_t T = s_.tokens(), C = s_.width;
  const Mixture m{.tokens = T,
                  .width = C,
                  .hidden = 2 * C,
                  .rows = kernels::moe_rows(T, kActive, kExperts, kAlign),
                  .dtype = dtype_};
  add<kernels::MoePermuteArgs>("", kernels::moe_permute, [=](Operands& o) {
    return kernels::MoePermuteArgs{.x = m.matrix(o, T, C),
                                   .sources = o.integers({m.rows}, scattered(T * kActive)),
                                   .y = m.matrix(o, m.rows, C),
                                   .active = kActive};
  });
  add<kernels::MoeCombineArgs>("", kernels::moe_combine, [=](Operands& o) {
    return kernels::MoeCombineArgs{.x = m.matrix(o, m.rows, C),
                                   .rows = m.row_of_choice(o),
                                   .weights = m.choices(o),
                                   .residual = m.matrix(o, T, C),
                                   .y = m.matrix(o, T, C)};
  });
  add<kernels::MoeDotsArgs>("", kernels::moe_dots, [=](Operands& o) {
    return kernels::MoeDotsArgs{.x = m.matrix(o, T, C),
                                .y = m.matrix(o, m.rows, C),
                                .rows = m.row_of_choice(o),
                                .dots = m.choices(o)};
  });
  add<kernels::GroupedGemmArgs>("swiglu", kernels::grouped_gemm, [=](Operands& o) {
    return kernels::GroupedGemmArgs{.offsets = m.offsets(o),
                                    .a = m.matrix(o, m.rows, C),
                                    .b = all_transposed(m.weights(o, m.hidden, C)),
                                    .c = m.matrix(o, m.rows, m.hidden),
                                    .epilogue = kernels::Epilogue::kSwiGlu,
                                    .aux = m.matrix(o, m.rows, m.hidden),
                                    .b_up = all_transposed(m.weights(o, m.hidden, C)),
                                    .aux_up = m.matrix(o, m.rows, m.hidden)};
  });
  add<kernels::GroupedGemmArgs>("down", kernels::grouped_gemm, [=](Operands& o) {
    return kernels::GroupedGemmArgs{.offsets = m.offsets(o),
                                    .a = m.matrix(o, m.rows, m.hidden),
                                    .b = all_transposed(m.weights(o, C, m.hidden)),
                                    .c = m.matrix(o, m.rows, C)};
  });
  add<kernels::GroupedGemmArgs>("dx_down", kernels::grouped_gemm, [=](Operands& o) {
    return kernels::GroupedGemmArgs{.offsets = m.offsets(o),
                                    .a = m.matrix(o, m.rows, C),
                                    .b = m.weights(o, C, m.hidden),
                                    .c = m.matrix(o, m.rows, m.hidden)};
  });
  add<kernels::GroupedGemmArgs>("dw_down", kernels::grouped_gemm, [=](Operands& o) {
    return kernels::GroupedGemmArgs{.offsets = m.offsets(o),
                                    .by = kernels::GroupedBy::kInner,
                                    .a = transposed(m.matrix(o, m.rows, C)),
                                    .b = m.matrix(o, m.rows, m.hidden),
                                    .c = m.weights(o, C, m.hidden)};
  });
  if (dtype_ == DType::kF32) add_routers();
}

// Adds the router's slots, which are always in f32.
void Cases::add_routers() {
  const int64_t T = s_.tokens();
  const Mixture m{.tokens = T,
                  .width = s_.width,
                  .hidden = 2 * s_.width,
                  .rows = kernels::moe_rows(T, kActive, kExperts, kAlign),
                  .dtype = dtype_};
  add<kernels::MoeRouteFwdArgs>("", kernels::moe_route_fwd, [=](Operands& o) {
    return kernels::MoeRouteFwdArgs{.logits = m.matrix(o, T, kExperts),
                                    .weights = m.choices(o),
                                    .experts = o.zeros(DType::kI32, {T, kActive}),
                                    .rule = {.renormalise = true}};
  });
  add<kernels::MoeRouteBwdArgs>("", kernels::moe_route_bwd, [=](Operands& o) {
    return kernels::MoeRouteBwdArgs{.logits = m.matrix(o, T, kExperts),
                                    .experts = m.experts(o),
                                    .counts = o.integers({1, kExperts}, 1000),
                                    .d_weights = m.choices(o),
                                    .d_logits = m.matrix(o, T, kExperts),
                                    .rule = {.renormalise = true},
                                    .balance = 0.01f,
                                    .z = 0.001f};
  });
  add<kernels::MoeSortArgs>("", kernels::moe_sort, [=](Operands& o) {
    return kernels::MoeSortArgs{.experts = m.experts(o),
                                .align = kAlign,
                                .counts = o.zeros(DType::kI32, {kExperts}),
                                .offsets = o.zeros(DType::kI32, {kExperts + 1}),
                                .rows = o.zeros(DType::kI32, {T, kActive}),
                                .sources = o.zeros(DType::kI32, {m.rows})};
  });
  add<kernels::MoeBalanceArgs>("", kernels::moe_balance, [=](Operands& o) {
    constexpr int64_t kLayers = 32;
    return kernels::MoeBalanceArgs{.loads = o.integers({kLayers, kExperts + 1}, 1000),
                                   .bias = o.zeros(DType::kF32, {kLayers, kExperts}),
                                   .rate = 0.001f};
  });
}

}  // namespace shale::kernel_check

#include "shale/kernels/cost.h"

#include <utility>
#include <vector>

#include "shale/kernels/kernel_call.h"
#include "shale/test/support/catch.h"

namespace shale::kernels {
namespace {

// A view of the given shape without memory; cost functions do not read it.
View view_of(DType dtype, const Shape& shape) {
  static char memory[1];
  return make_view(memory, dtype, shape);
}

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

}  // namespace

TEST_CASE("a product counts two FLOP per multiply-add, and every operand once", "[kernels]") {
  GemmArgs args{.a = view_of(kBF16, {3, 5}), .b = view_of(kBF16, {5, 7}),
                         .c = view_of(kF32, {3, 7})};
  CHECK(cost_of(args).flops == 2 * 3 * 5 * 7);
  CHECK(cost_of(args).read_bytes == 2 * (3 * 5 + 5 * 7));
  CHECK(cost_of(args).written_bytes == 4 * 3 * 7);
  args.accumulate = true;
  CHECK(cost_of(args).read_bytes == 2 * (3 * 5 + 5 * 7) + 4 * 3 * 7);
}

TEST_CASE("the pre-activation is written forward and read backward", "[kernels]") {
  GemmArgs args{.a = view_of(kF32, {2, 2}), .b = view_of(kF32, {2, 2}),
                         .c = view_of(kF32, {2, 2}), .epilogue = Epilogue::kGeluTanh,
                         .aux = view_of(kF32, {2, 2})};
  CHECK(cost_of(args).read_bytes == 32);
  CHECK(cost_of(args).written_bytes == 32);
  args.epilogue = Epilogue::kDGeluTanh;
  CHECK(cost_of(args).read_bytes == 48);
  CHECK(cost_of(args).written_bytes == 16);
}

TEST_CASE("SwiGLU has two products forward, and two results of one backward", "[kernels]") {
  const View square = view_of(kF32, {2, 2});  // 16 bytes of f32
  const GemmArgs forward{.a = square, .b = square, .c = square,
                                  .epilogue = Epilogue::kSwiGlu, .aux = square,
                                  .b_up = square, .aux_up = square};
  CHECK(cost_of(forward).flops == 2 * 2 * 2 * 2 * 2);
  CHECK(cost_of(forward).read_bytes == 3 * 16);
  CHECK(cost_of(forward).written_bytes == 3 * 16);
  const GemmArgs backward{.a = square, .b = square, .c = square,
                                   .epilogue = Epilogue::kDSwiGlu, .aux = square,
                                   .aux_up = square, .c_up = square};
  CHECK(cost_of(backward).flops == 2 * 2 * 2 * 2);
  CHECK(cost_of(backward).read_bytes == 4 * 16);
  CHECK(cost_of(backward).written_bytes == 2 * 16);
}

TEST_CASE("causal attention counts the pairs that the mask leaves", "[kernels]") {
  const auto fwd = [](int64_t queries, int64_t keys, bool causal) {
    return cost_of(AttentionFwdArgs{
        .q = view_of(kF32, {2, queries, 3, 8}), .k = view_of(kF32, {2, keys, 3, 8}),
        .v = view_of(kF32, {2, keys, 3, 8}), .out = view_of(kF32, {2, queries, 3, 8}),
        .lse = view_of(kF32, {2, 3, queries}), .causal = causal});
  };
  // Two GEMMs with 2 FLOP per multiply-add, over D = 8 elements, for B H = 6 heads.
  CHECK(fwd(4, 4, false).flops == 4 * 8 * 6 * 16);
  CHECK(fwd(4, 4, true).flops == 4 * 8 * 6 * (1 + 2 + 3 + 4));
  // A causal mask aligned at the bottom right: the two queries see 3 and 4 keys.
  CHECK(fwd(2, 4, true).flops == 4 * 8 * 6 * (3 + 4));
  CHECK(fwd(4, 2, true).flops == 4 * 8 * 6 * (0 + 0 + 1 + 2));
}

TEST_CASE("AdamW moves 28 bytes per f32 parameter and 30 with a bf16 copy", "[kernels]") {
  AdamWArgs args{.master = view_of(kF32, {10}), .grad = view_of(kF32, {10}),
                          .m = view_of(kF32, {10}), .v = view_of(kF32, {10})};
  CHECK(cost_of(args).bytes() == 28 * 10);
  args.param = view_of(kBF16, {10});
  CHECK(cost_of(args).bytes() == 30 * 10);
}

TEST_CASE("AdamW with 8-bit moments moves 16 bytes per parameter, and scales", "[kernels]") {
  const View codes = view_of(DType::kU8, {512}), scales = view_of(kF32, {8});
  const AdamW8bitArgs args{.master = view_of(kF32, {512}), .grad = view_of(kF32, {512}),
                                    .m = codes, .v = codes, .m_scale = scales, .v_scale = scales};
  CHECK(cost_of(args).bytes() == 16 * 512 + 4 * 4 * 8);
}

TEST_CASE("signs move 20 bytes per parameter to be packed, and a word per 32", "[kernels]") {
  const View values = view_of(kF32, {2048}), packed = view_of(DType::kI32, {2, 33});
  CHECK(cost_of(SignPackArgs{
                    .value = values, .grad = values, .mask = values, .owed = values,
                    .packed = packed})
            .bytes() == 20 * 2048 + 2 * 132);
}

TEST_CASE("an embedding's gradient counts touched rows when adding, else the table", "[kernels]") {
  EmbeddingBwdArgs args{.ids = view_of(DType::kI32, {2, 3}),
                                 .dy = view_of(kBF16, {2, 3, 4}),
                                 .d_table = view_of(kF32, {100, 4})};
  const double input = 6 * 4 + 24 * 2;
  CHECK(cost_of(args).read_bytes == input);
  CHECK(cost_of(args).written_bytes == 100 * 16);
  args.accumulate_table = true;
  CHECK(cost_of(args).read_bytes == input + 6 * 16);
  CHECK(cost_of(args).written_bytes == 6 * 16);
}

TEST_CASE("a tree sum reads every input and writes every output", "[kernels]") {
  std::vector<const void*> inputs(3);
  std::vector<void*> outputs(2);
  const Cost cost = cost_of(TreeSumArgs{
      .inputs = inputs, .outputs = outputs, .count = 10, .in_dtype = kBF16, .out_dtype = kF32});
  CHECK(cost.read_bytes == 3 * 10 * 2);
  CHECK(cost.written_bytes == 2 * 10 * 4);
}

TEST_CASE("names of products tell layouts and epilogues apart", "[kernels]") {
  float memory[64] = {};
  const View a = make_view(memory, {4, 4});
  View t = a;
  std::swap(t.strides[0], t.strides[1]);
  CHECK(gemm_name({.a = t, .b = a, .c = a, .accumulate = true}) == "TN 4x4x4 accumulate");
  CHECK(gemm_name({.a = a, .b = t, .c = a, .bias = make_view(memory, {4}),
                   .epilogue = Epilogue::kGeluErf, .aux = a, .residual = a}) ==
        "NT 4x4x4 bias gelu residual");
}

}  // namespace shale::kernels

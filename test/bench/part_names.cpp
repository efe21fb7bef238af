#include "shale/bench/support/part_names.h"

#include <algorithm>

#include "shale/models/language/family.h"
#include "shale/test/support/catch.h"

namespace shale::bench {
namespace {

constexpr models::LanguageModelConfig kModel = {
    .layers = 2, .width = 64, .heads = 2, .vocab = 300, .padded_vocab = 384};

View view_of(int64_t rows, int64_t cols, bool transposed) {
  static char memory[1];
  View view = make_view(memory, DType::kF32, {rows, cols});
  if (transposed) view.strides = {1, rows};
  return view;
}

std::string part_of(const kernels::GemmArgs& args,
                    const models::LanguageModelConfig& model = kModel) {
  const PartNames names(models::make_language_model(model)->products());
  return names.of({.slot = "gemm", .gemm = &args});
}

// GEMM of a layer [out, in] on 10 tokens.
std::string forward(int64_t in, int64_t out) {
  return part_of(
      {.a = view_of(10, in, false), .b = view_of(in, out, true), .c = view_of(10, out, false)});
}

}  // namespace

TEST_CASE("slots have parts of a step, or show under their own names", "[bench]") {
  const PartNames names({});
  CHECK(names.of({.slot = "adamw"}) == "optimizer");
  CHECK(names.of({.slot = "rms_norm_bwd"}) == "norm, backward");
  CHECK(names.of({.slot = "a_new_kernel"}) == "a_new_kernel");
}

TEST_CASE("products belong to the layer of their sizes, by direction", "[bench]") {
  CHECK(forward(64, 192) == "QKV, forward");
  CHECK(forward(64, 64) == "attention output, forward");
  CHECK(forward(64, 256) == "FFN up, forward");
  CHECK(forward(256, 64) == "FFN down, forward");
  CHECK(forward(64, 384) == "classifier, forward");
  const View tokens_in = view_of(10, 256, false), tokens_out = view_of(10, 64, false);
  CHECK(part_of({.a = tokens_out, .b = view_of(64, 256, false), .c = tokens_in}) ==
        "FFN down, input gradient");
  CHECK(part_of({.a = view_of(64, 10, true), .b = tokens_in, .c = view_of(64, 256, false)}) ==
        "FFN down, weight gradient");
}

TEST_CASE("epilogues are part of a product's name, accumulation is not", "[bench]") {
  const View x = view_of(10, 64, false), w = view_of(64, 256, true), y = view_of(10, 256, false);
  CHECK(part_of({.a = x,
                 .b = w,
                 .c = y,
                 .bias = view_of(256, 1, false),
                 .epilogue = kernels::Epilogue::kGeluTanh,
                 .aux = y}) == "FFN up, forward (bias gelu)");
  const View dy = view_of(192, 10, true), dw = view_of(192, 64, false);
  CHECK(part_of({.a = dy, .b = x, .c = dw}) ==
        part_of({.a = dy, .b = x, .c = dw, .accumulate = true}));
}

TEST_CASE("layers of one size are one part", "[bench]") {
  models::LanguageModelConfig model = kModel;
  model.padded_vocab = 256;
  model.vocab = 256;
  const kernels::GemmArgs args = {
      .a = view_of(10, 64, false), .b = view_of(64, 256, true), .c = view_of(10, 256, false)};
  CHECK(part_of(args, model) == "FFN up and classifier, forward");
}

TEST_CASE("a product that the model does not name goes by its shape", "[bench]") {
  CHECK(forward(65, 192) == "NT 10x192x65");
  const View dy = view_of(65, 10, true), x = view_of(10, 64, false), dw = view_of(65, 64, false);
  CHECK(part_of({.a = dy, .b = x, .c = dw, .accumulate = true}) == "TN 65x64x10");
}

TEST_CASE("a model's products are with its weights", "[bench]") {
  const auto model = models::make_language_model(kModel);
  const std::vector<models::NamedProduct> products = model->products();
  for (const Parameter* parameter : model->parameters()) {
    if (parameter->shape.ndim() != 2 || parameter->full_name() == "wpe.weight") continue;
    CAPTURE(parameter->full_name());
    CHECK(std::ranges::count_if(products, [&](const models::NamedProduct& product) {
            return parameter->shape == Shape{product.out, product.in};
          }) == 1);
  }
}

}  // namespace shale::bench

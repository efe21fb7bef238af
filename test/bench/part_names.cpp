#include "shale/bench/support/part_names.h"

#include "shale/base/error.h"
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

NamedPart part_of(const kernels::GemmArgs& args) {
  return PartNames(kModel).of({.slot = "gemm", .gemm = &args});
}

// The product of a layer [out, in] over 10 tokens.
NamedPart forward(int64_t in, int64_t out) {
  return part_of(
      {.a = view_of(10, in, false), .b = view_of(in, out, true), .c = view_of(10, out, false)});
}

}  // namespace

TEST_CASE("every kernel has a part of a step that it belongs to", "[bench]") {
  const PartNames names(kModel);
  for (const kernels::SlotBase* slot : kernels::SlotBase::all()) {
    if (std::string_view(slot->name()) == "gemm") continue;  // by its sizes, below
    CAPTURE(slot->name());
    CHECK_FALSE(names.of({.slot = slot->name()}).name.empty());
  }
  CHECK_THROWS_AS(names.of({.slot = "a new kernel"}), InternalError);
}

TEST_CASE("products belong to the layer of their sizes, by direction", "[bench]") {
  CHECK(forward(64, 192).name == "QKV, forward");
  CHECK(forward(64, 64).name == "attention output, forward");
  CHECK(forward(64, 256).name == "FFN up, forward");
  CHECK(forward(256, 64).name == "FFN down, forward");
  CHECK(forward(64, 384).name == "classifier, forward");
  const View tokens_in = view_of(10, 256, false), tokens_out = view_of(10, 64, false);
  CHECK(part_of({.a = tokens_out, .b = view_of(64, 256, false), .c = tokens_in}).name ==
        "FFN down, input gradient");
  CHECK(part_of({.a = view_of(64, 10, true), .b = tokens_in, .c = view_of(64, 256, false)}).name ==
        "FFN down, weight gradient");
}

TEST_CASE("epilogues are part of a product's name, accumulation is not", "[bench]") {
  const View x = view_of(10, 64, false), w = view_of(64, 256, true), y = view_of(10, 256, false);
  CHECK(part_of({.a = x,
                 .b = w,
                 .c = y,
                 .bias = view_of(256, 1, false),
                 .epilogue = kernels::Epilogue::kGeluTanh,
                 .aux = y})
            .name == "FFN up, forward (bias gelu)");
  const View dy = view_of(192, 10, true), dw = view_of(192, 64, false);
  const NamedPart first = part_of({.a = dy, .b = x, .c = dw});
  const NamedPart second = part_of({.a = dy, .b = x, .c = dw, .accumulate = true});
  CHECK(first.name == second.name);
  CHECK(first.place == second.place);
}

TEST_CASE("rows stand in the order of a step", "[bench]") {
  const PartNames names(kModel);
  const std::vector<int> places = {names.of({.slot = "embedding_fwd"}).place,
                                   names.of({.slot = "layer_norm_fwd"}).place,
                                   forward(64, 192).place,
                                   names.of({.slot = "attention_fwd"}).place,
                                   forward(64, 64).place,
                                   forward(64, 256).place,
                                   forward(256, 64).place,
                                   forward(64, 384).place,
                                   names.of({.slot = "cross_entropy"}).place,
                                   names.of({.slot = "attention_bwd"}).place,
                                   names.of({.slot = "layer_norm_bwd"}).place,
                                   names.of({.slot = "adamw"}).place};
  CHECK(std::is_sorted(places.begin(), places.end()));
}

TEST_CASE("a product of no layer is an error, and layers of one size are one part", "[bench]") {
  CHECK_THROWS_AS(forward(65, 192), InternalError);
  models::LanguageModelConfig model = kModel;
  model.padded_vocab = 256;
  const kernels::GemmArgs args = {
      .a = view_of(10, 64, false), .b = view_of(64, 256, true), .c = view_of(10, 256, false)};
  CHECK(PartNames(model).of({.slot = "gemm", .gemm = &args}).name ==
        "FFN up and classifier, forward");
}

}  // namespace shale::bench

#include "shale/models/language/family.h"

#include <array>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"

namespace shale::models {

using test::contains;
using test::message_of;

TEST_CASE("a model's shape reads back as it was written", "[models]") {
  LanguageModelConfig model = preset("gpt2-124m", 1024);
  model.gelu = GENERATE(Gelu::kTanh, Gelu::kErf);
  model.norm_eps = GENERATE(1e-5f, 3e-7f, 1.f);
  const std::string json = model_shape_json(model);
  const LanguageModelConfig back = parse_model_shape(json, "x");
  CHECK(back.layers == 12);
  CHECK(back.width == 768);
  CHECK(back.heads == 12);
  CHECK(back.vocab == 50257);
  CHECK(back.padded_vocab == 50304);
  CHECK(back.context == 1024);
  CHECK(back.norm_eps == model.norm_eps);
  CHECK(back.gelu == model.gelu);
  CHECK(model_shape_json(back) == json);
}

TEST_CASE("a shape that no model has is an error that names the key", "[models]") {
  const std::string good = model_shape_json(preset("nano", 64));
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const size_t at = text.find(from);
    REQUIRE(at != text.npos);
    return text.replace(at, from.size(), to);
  };
  const std::vector<std::array<std::string, 3>> cases = {
      {"\"layers\":4", "\"layers\":0", "layers"},
      {"\"layers\":4", "\"layers\":4.0", "layers"},
      {"\"layers\":4", "\"layers\":20000", "layers"},
      {"\"layers\":4,", "", "layers"},
      {"\"heads\":4", "\"heads\":3", "width"},
      {"\"heads\":4", "\"heads\":256", "heads"},
      {"\"vocab\":256", "\"vocab\":257", "padded_vocab"},
      {"\"width\":128", "\"width\":9223372036854775807", "width"},
      {"\"norm_eps\":1e-05", "\"norm_eps\":0", "norm_eps"},
      {"\"gelu\":\"tanh\"", "\"gelu\":\"relu\"", "gelu"}};
  for (const auto& [from, to, key] : cases) {
    CAPTURE(to);
    const std::string text = with(from, to);
    CHECK(contains(message_of<DataError>([&] { parse_model_shape(text, "x"); }), "'" + key + "'"));
  }
}

TEST_CASE("a shape's window is of layers that the model has", "[models]") {
  LanguageModelConfig model = preset("llama-nano", 64);
  model.window = 16;
  for (const int64_t layers : {0, 2, 4}) {
    model.full_layers = layers;
    const LanguageModelConfig back = parse_model_shape(model_shape_json(model), "x");
    CHECK(back.window == 16);
    CHECK(back.full_layers == layers);
  }
  for (const int64_t layers : {-1, 5}) {
    model.full_layers = layers;
    CHECK(contains(message_of<DataError>([&] { parse_model_shape(model_shape_json(model), "x"); }),
                   "'full_layers'"));
  }
}

}  // namespace shale::models

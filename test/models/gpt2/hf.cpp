#include "shale/models/gpt2/hf.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

float formula(const std::string& name, int64_t element) {
  const uint64_t hash = hash_name(name);
  const auto quad = static_cast<uint64_t>(element / 4);
  const PhiloxCounter words =
      philox({static_cast<uint32_t>(quad), static_cast<uint32_t>(quad >> 32),
              static_cast<uint32_t>(hash), static_cast<uint32_t>(hash >> 32)},
             {2, 0});
  const bool is_gain = contains(name, "ln_") && contains(name, ".weight");
  const float scale = contains(name, ".bias") ? 0x1p-4f : 0x1p-3f;
  const float unit = uniform_f32(words[static_cast<size_t>(element % 4)]);
  return (is_gain ? 1.f : 0.f) + scale * (unit - 0.5f);
}

int64_t numel(const std::vector<int64_t>& shape) {
  return Shape(shape).numel();
}

std::vector<float> formula(const Gpt2Tensor& tensor) {
  std::vector<float> values;
  for (int64_t i = 0; i < numel(tensor.shape); ++i) values.push_back(formula(tensor.name, i));
  return values;
}

HfGpt2Config small() {
  return {.layers = 2, .width = 6, .heads = 2, .vocab = 5, .context = 7, .end_token = 4};
}

// Writes a folder with the formula's values. The last `padded` rows of wte are 99.
void export_small(const std::string& folder, const Gpt2ExportOptions& options = {},
                  int64_t padded = 5) {
  std::vector<float> values;
  Gpt2Export writer(folder, small(), options);
  for (const Gpt2Tensor& tensor : writer.tensors()) {
    values = formula(tensor);
    Shape shape(tensor.shape);
    if (tensor.name == "wte.weight") {
      shape[0] = padded;
      values.resize(static_cast<size_t>(shape.numel()), 99.f);
    }
    writer.write(tensor.name, make_view(values.data(), shape));
  }
  writer.commit();
}

std::vector<float> read_all(const Gpt2Weights& weights, const Gpt2Tensor& tensor) {
  std::vector<float> values(static_cast<size_t>(numel(tensor.shape)), -7.f);
  weights.read(tensor.name, make_view(values.data(), Shape(tensor.shape)));
  return values;
}

struct NamedTensor {
  SafetensorsSpec spec;
  std::vector<float> values;
};

std::vector<NamedTensor> load_file(const std::string& folder) {
  const SafetensorsFolder file(folder);
  std::vector<NamedTensor> tensors;
  for (const auto& [name, tensor] : file.tensors()) {
    const View view = tensor.view();
    const float* data = view.as<float>();
    tensors.push_back({{name, DType::kF32, tensor.entry->shape}, {data, data + view.numel()}});
  }
  return tensors;
}

void save_file(const std::string& folder, const std::vector<NamedTensor>& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const NamedTensor& tensor : tensors) specs.push_back(tensor.spec);
  SafetensorsFolderWriter writer(folder, specs);
  for (const NamedTensor& tensor : tensors) {
    writer.write(std::as_bytes(std::span(tensor.values)));
  }
  writer.commit();
}

}  // namespace

TEST_CASE("config.json of transformers is read", "[io]") {
  const HfGpt2Config config = load_gpt2_config(test::fixture_path("gpt2/hf_tiny"));
  CHECK(config == HfGpt2Config{.layers = 2,
                               .width = 32,
                               .heads = 2,
                               .vocab = 96,
                               .context = 32,
                               .layer_norm_eps = 1e-5,
                               .gelu_tanh = true,
                               .resid_dropout = 0,
                               .embd_dropout = 0,
                               .attn_dropout = 0,
                               .initializer_range = 0.02,
                               .end_token = 95});
}

TEST_CASE("weights of transformers are read into Shale's layout", "[io]") {
  const HfGpt2Config config = load_gpt2_config(test::fixture_path("gpt2/hf_tiny"));
  const Gpt2Weights weights(test::fixture_path("gpt2/hf_tiny"), config);
  const Gpt2Weights narrow(test::fixture_path("gpt2/hf_tiny_bf16"), config);
  REQUIRE(gpt2_tensors(config).size() == 2 + 2 * 12 + 2);
  for (const Gpt2Tensor& tensor : gpt2_tensors(config)) {
    CAPTURE(tensor.name);
    std::vector<float> want = formula(tensor);
    CHECK(read_all(weights, tensor) == want);
    for (float& value : want) value = to_f32(bf16(value));
    CHECK(read_all(narrow, tensor) == want);
  }
}

TEST_CASE("an export of what transformers wrote is that very file again", "[io]") {
  const std::string name = GENERATE(as<std::string>{}, "hf_tiny", "hf_tiny_bf16");
  const HfGpt2Config config = load_gpt2_config(test::fixture_path(cat("gpt2/", name)));
  const Gpt2Weights weights(test::fixture_path(cat("gpt2/", name)), config);
  const DType dtype = name == "hf_tiny" ? DType::kF32 : DType::kBF16;
  const TempDir dir;
  Gpt2Export writer(dir.path(), config, {.dtype = dtype});
  for (const Gpt2Tensor& tensor : writer.tensors()) {
    std::vector<float> values = read_all(weights, tensor);
    writer.write(tensor.name, make_view(values.data(), Shape(tensor.shape)));
  }
  writer.commit();
  CHECK(test::read_file(dir.file("model.safetensors")) ==
        test::read_file(test::fixture_path(cat("gpt2/", name)) + "/model.safetensors"));
}

TEST_CASE("an export is read back the same, one file or many", "[io]") {
  const TempDir dir;
  const int64_t limit = GENERATE(int64_t{1} << 30, 300);
  export_small(dir.path(), {.dtype = DType::kF32, .max_shard_bytes = limit});
  CHECK(fs::exists(dir.file("model.safetensors")) == (limit > 300));
  CHECK(load_gpt2_config(dir.path()) == small());
  const Gpt2Weights weights(dir.path(), small());
  for (const Gpt2Tensor& tensor : gpt2_tensors(small())) {
    CAPTURE(tensor.name);
    CHECK(read_all(weights, tensor) == formula(tensor));
  }
}

TEST_CASE("an export in another type rounds to nearest", "[io]") {
  const TempDir dir;
  export_small(dir.file("bf16"), {.dtype = DType::kBF16});
  export_small(dir.file("f16"), {.dtype = DType::kF16});
  const Gpt2Weights brain(dir.file("bf16"), small());
  const Gpt2Weights half(dir.file("f16"), small());
  for (const Gpt2Tensor& tensor : gpt2_tensors(small())) {
    CAPTURE(tensor.name);
    std::vector<float> want_brain = formula(tensor), want_half = formula(tensor);
    for (float& value : want_brain) value = to_f32(bf16(value));
    for (float& value : want_half) value = to_f32(f16(value));
    CHECK(read_all(brain, tensor) == want_brain);
    CHECK(read_all(half, tensor) == want_half);
  }
  CHECK_THROWS_AS(Gpt2Export(dir.file("x"), small(), {.dtype = DType::kF64}), ConfigError);
}

TEST_CASE("large parameters are exported in several pieces", "[io]") {
  HfGpt2Config config = small();
  config.layers = 1;
  // So large that c_fc (2560 x 640) and wte have more than 2^20 elements, the size of a part.
  config.width = 640;
  config.vocab = 2000;
  const TempDir dir;
  std::vector<float> values;
  Gpt2Export writer(dir.path(), config);
  for (const Gpt2Tensor& tensor : writer.tensors()) {
    values.resize(static_cast<size_t>(numel(tensor.shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 65521);
    writer.write(tensor.name, make_view(values.data(), Shape(tensor.shape)));
  }
  writer.commit();
  const Gpt2Weights weights(dir.path(), config);
  for (const Gpt2Tensor& tensor : gpt2_tensors(config)) {
    const std::vector<float> found = read_all(weights, tensor);
    size_t wrong = 0;
    for (size_t i = 0; i < found.size(); ++i) wrong += found[i] != static_cast<float>(i % 65521);
    CAPTURE(tensor.name);
    CHECK(wrong == 0);
  }
}

TEST_CASE("linear weights are transposed in the file, other tensors are not", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  const SafetensorsFolder file(dir.path());
  CHECK(file.tensors().size() == gpt2_tensors(small()).size());
  const View fc = file.find("transformer.h.1.mlp.c_fc.weight")->view();
  REQUIRE(fc.shape == Shape{6, 24});
  for (int64_t in = 0; in < 6; ++in) {
    for (int64_t out = 0; out < 24; ++out) {
      REQUIRE(fc.as<float>()[in * 24 + out] == formula("h.1.mlp.c_fc.weight", out * 6 + in));
    }
  }
  CHECK(file.find("transformer.wte.weight")->view().shape == Shape{5, 6});
  CHECK(file.find("lm_head.weight") == nullptr);
}

TEST_CASE("padding rows are cut at export and zero when read", "[io]") {
  const TempDir dir;
  export_small(dir.path(), {}, /*padded=*/8);
  CHECK(SafetensorsFolder(dir.path()).find("transformer.wte.weight")->entry->shape ==
        std::vector<int64_t>{5, 6});
  const Gpt2Weights weights(dir.path(), small());
  std::vector<bf16> values(8 * 6, bf16(-7.f));
  weights.read("wte.weight", make_view(values.data(), {8, 6}));
  for (int64_t i = 0; i < 48; ++i) {
    const float want = i < 30 ? to_f32(bf16(formula("wte.weight", i))) : 0.f;
    CHECK(to_f32(values[static_cast<size_t>(i)]) == want);
  }
  weights.read("wte.weight", make_view(values.data(), {2, 6}), /*first_row=*/6);
  CHECK(to_f32(values[0]) == 0.f);
}

TEST_CASE("any range of rows can be read by itself", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  const Gpt2Weights weights(dir.path(), small());
  for (const char* name :
       {"h.0.attn.c_attn.weight", "h.1.mlp.c_proj.weight", "wpe.weight", "h.0.mlp.c_fc.bias"}) {
    const auto tensors = gpt2_tensors(small());
    const auto it = std::find_if(tensors.begin(), tensors.end(),
                                 [&](const Gpt2Tensor& tensor) { return tensor.name == name; });
    REQUIRE(it != tensors.end());
    const int64_t rows = it->shape[0];
    const int64_t cols = numel(it->shape) / rows;
    for (int64_t first = 0; first <= rows; ++first) {
      for (int64_t count = 0; count <= rows - first; count += 1 + count / 3) {
        std::vector<float> part(static_cast<size_t>(count * cols) + 1, -7.f);
        Shape shape(it->shape);
        shape[0] = count;
        weights.read(name, make_view(part.data(), shape), first);
        for (int64_t i = 0; i < count * cols; ++i) {
          REQUIRE(part[static_cast<size_t>(i)] == formula(name, first * cols + i));
        }
        REQUIRE(part.back() == -7.f);
      }
    }
  }
}

TEST_CASE("reads that do not fit the parameter are errors", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  const Gpt2Weights weights(dir.path(), small());
  std::vector<float> values(1000);
  const auto read = [&](const char* name, const Shape& shape, int64_t first_row) {
    weights.read(name, make_view(values.data(), shape), first_row);
  };
  CHECK_THROWS_AS(read("absent.weight", {1}, 0), InternalError);
  CHECK_THROWS_AS(read("wpe.weight", {7, 5}, 0), ShapeError);
  CHECK_THROWS_AS(read("wpe.weight", {42}, 0), ShapeError);
  CHECK_THROWS_AS(read("wpe.weight", {8, 6}, 0), ShapeError);  // only wte has padding
  CHECK_THROWS_AS(read("wpe.weight", {2, 6}, 6), ShapeError);
  CHECK_THROWS_AS(read("wpe.weight", {2, 6}, -1), ShapeError);
  CHECK_THROWS_AS(weights.read("wpe.weight", make_view(values.data(), DType::kI32, {7, 6})),
                  DTypeError);
  View strided = make_view(values.data(), {7, 6});
  strided.strides = {1, 7};
  CHECK_THROWS_AS(weights.read("wpe.weight", strided), ShapeError);
}

TEST_CASE("files without the prefix, with masks and with a tied head are understood", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  std::vector<NamedTensor> tensors = load_file(dir.path());
  const auto strip = [](std::string name) { return name.substr(std::strlen("transformer.")); };
  const auto wte = std::find_if(tensors.begin(), tensors.end(), [](const NamedTensor& tensor) {
    return contains(tensor.spec.name, "wte");
  });
  NamedTensor head = *wte;
  head.spec.name = "lm_head.weight";
  const bool with_prefix = GENERATE(true, false);
  if (!with_prefix) {
    for (NamedTensor& tensor : tensors) tensor.spec.name = strip(tensor.spec.name);
  }
  const std::string prefix = with_prefix ? "transformer." : "";
  tensors.push_back({{prefix + "h.0.attn.bias", DType::kF32, {1, 1, 2, 2}}, {1, 0, 1, 1}});
  tensors.push_back({{prefix + "h.1.attn.masked_bias", DType::kF32, {}}, {-10000}});
  tensors.push_back(head);
  save_file(dir.path(), tensors);
  const Gpt2Weights weights(dir.path(), small());
  for (const Gpt2Tensor& tensor : gpt2_tensors(small())) {
    CHECK(read_all(weights, tensor) == formula(tensor));
  }

  tensors.back().values[17] += 1;
  save_file(dir.path(), tensors);
  const std::string message = message_of<DataError>([&] { Gpt2Weights(dir.path(), small()); });
  CHECK(contains(message, "lm_head.weight differs"));
  CHECK(contains(message, "row 2;"));
}

TEST_CASE("missing, unknown and misshapen tensors are listed with expected and found", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  std::vector<NamedTensor> tensors = load_file(dir.path());
  for (NamedTensor& tensor : tensors) {
    if (tensor.spec.name == "transformer.wpe.weight") tensor.spec.shape = {6, 7};
    if (tensor.spec.name == "transformer.ln_f.bias") tensor.spec.name = "transformer.ln_g.bias";
  }
  tensors.push_back({{"transformer.h.0.attn.bias.more", DType::kF32, {1}}, {0}});
  save_file(dir.path(), tensors);
  const std::string message = message_of<DataError>([&] { Gpt2Weights(dir.path(), small()); });
  CHECK(contains(message, "transformer.wpe.weight is F32[6,7], expected F32, BF16 or F16 [7,6]"));
  CHECK(contains(message, "ln_f.bias is missing, expected [6]"));
  CHECK(contains(message, "transformer.ln_g.bias is F32[6], unknown"));
  CHECK(contains(message, "attn.bias.more"));

  HfGpt2Config deeper = small();
  deeper.layers = 4;  // two more blocks lack 24 tensors; the folder also has the four errors above
  CHECK(contains(message_of<DataError>([&] { Gpt2Weights(dir.path(), deeper); }), "and 18 more"));
}

TEST_CASE("a tensor with and without prefix is an error", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  std::vector<NamedTensor> tensors = load_file(dir.path());
  tensors.push_back({{"ln_f.bias", DType::kF32, {6}}, std::vector<float>(6)});
  save_file(dir.path(), tensors);
  CHECK(contains(message_of<DataError>([&] { Gpt2Weights(dir.path(), small()); }),
                 "with and without"));
}

TEST_CASE("weights of a type that is no float are an error", "[io]") {
  const TempDir dir;
  export_small(dir.path());
  std::vector<NamedTensor> tensors = load_file(dir.path());
  tensors.front().spec.dtype = DType::kI32;
  save_file(dir.path(), tensors);
  CHECK(contains(message_of<DataError>([&] { Gpt2Weights(dir.path(), small()); }), "I32"));
}

TEST_CASE("an export that is out of order or incomplete is an error and leaves nothing", "[io]") {
  const TempDir dir;
  std::vector<float> values(100);
  {
    Gpt2Export writer(dir.path(), small());
    CHECK_THROWS_AS(writer.write("wpe.weight", make_view(values.data(), {7, 6})), InternalError);
    CHECK_THROWS_AS(writer.write("wte.weight", make_view(values.data(), {4, 6})), ShapeError);
    CHECK_THROWS_AS(writer.write("wte.weight", make_view(values.data(), {6, 5})), ShapeError);
    CHECK_THROWS_AS(writer.write("wte.weight", make_view(values.data(), DType::kI32, {5, 6})),
                    ShapeError);
    writer.write("wte.weight", make_view(values.data(), {5, 6}));
    CHECK_THROWS_AS(writer.write("wpe.weight", make_view(values.data(), {8, 6})), ShapeError);
    CHECK_THROWS_AS(writer.commit(), InternalError);
  }
  CHECK(fs::is_empty(dir.path()));
}

TEST_CASE("a config.json that Shale's GPT-2 cannot honour is an error that names the key", "[io]") {
  const std::map<std::string, std::string> good = {
      {"model_type", "\"gpt2\""}, {"n_layer", "2"},    {"n_embd", "6"}, {"n_head", "2"},
      {"vocab_size", "5"},        {"n_positions", "7"}};
  const TempDir dir;
  const auto load = [&](std::map<std::string, std::string> keys) {
    std::string text = "{";
    for (const auto& [key, value] : keys) {
      if (!value.empty()) text += (text.size() > 1 ? ",\"" : "\"") + key + "\":" + value;
    }
    dir.write("config.json", text + "}");
    return load_gpt2_config(dir.path());
  };
  const auto with = [&](const std::string& key, const std::string& value) {
    auto keys = good;
    keys[key] = value;
    return keys;
  };
  HfGpt2Config want = small();  // missing keys have GPT-2's values
  want.end_token = std::nullopt;  // the tokenizer decides about the end token
  CHECK(load(good) == want);
  CHECK(load(with("n_inner", "null")) == want);
  CHECK(load(with("n_inner", "24")) == want);
  CHECK(load(with("activation_function", "\"gelu_pytorch_tanh\"")) == want);
  CHECK(load(with("eos_token_id", "[1,2]")) == want);
  CHECK_FALSE(load(with("activation_function", "\"gelu\"")).gelu_tanh);
  CHECK(load(with("layer_norm_epsilon", "1")).layer_norm_eps == 1);
  CHECK(load(with("eos_token_id", "3")).end_token == 3);

  const std::vector<std::pair<std::string, std::string>> bad = {
      {"model_type", "\"llama\""},
      {"model_type", ""},
      {"n_layer", ""},
      {"n_layer", "null"},
      {"n_layer", "2.0"},
      {"n_layer", "\"2\""},
      {"n_layer", "0"},
      {"n_layer", "-1"},
      {"n_layer", "20000"},
      {"n_layer", "18446744073709551615"},
      {"n_embd", "7"},
      {"n_embd", "4611686018427387904"},
      {"n_head", ""},
      {"vocab_size", ""},
      {"n_positions", ""},
      {"n_inner", "12"},
      {"activation_function", "\"relu\""},
      {"activation_function", "1"},
      {"scale_attn_weights", "false"},
      {"scale_attn_by_inverse_layer_idx", "true"},
      {"scale_attn_by_inverse_layer_idx", "1"},
      {"add_cross_attention", "true"},
      {"is_causal", "false"},
      {"quantization_config", R"({"load_in_8bit":true})"},
      {"tie_word_embeddings", "false"},
      {"layer_norm_epsilon", "0"},
      {"layer_norm_epsilon", "1e-40"},
      {"layer_norm_epsilon", "1e300"},
      {"initializer_range", "-1"},
      {"layer_norm_epsilon", "\"x\""},
      {"resid_pdrop", "1"},
      {"embd_pdrop", "-0.1"},
      {"attn_pdrop", "true"},
  };
  for (const auto& [key, value] : bad) {
    CAPTURE(key, value);
    const auto keys = with(key, value);
    const std::string message = message_of<DataError>([&] { load(keys); });
    CHECK(contains(message, "'" + key + "'"));
    CHECK(contains(message, "config.json"));
  }
  dir.write("config.json", "[]");
  CHECK_THROWS_AS(load_gpt2_config(dir.path()), DataError);
  dir.write("config.json", "{\"n_layer\":1,\"n_layer\":2}");
  CHECK_THROWS_AS(load_gpt2_config(dir.path()), DataError);
  CHECK_THROWS_AS(load_gpt2_config(dir.file("absent")), MissingInputError);
}

TEST_CASE("every setting survives writing and reading config.json", "[io]") {
  const TempDir dir;
  const HfGpt2Config config{.layers = 3,
                            .width = 48,
                            .heads = 6,
                            .vocab = 1000,
                            .context = 77,
                            .layer_norm_eps = 3e-7,
                            .gelu_tanh = false,
                            .resid_dropout = 0.25,
                            .embd_dropout = 0.5,
                            .attn_dropout = 0,
                            .initializer_range = 0.01,
                            .end_token = 7};
  dir.write("config.json", gpt2_config_json(config, DType::kBF16));
  CHECK(load_gpt2_config(dir.path()) == config);
  CHECK(contains(test::read_file(dir.file("config.json")), "\"bfloat16\""));
}

}  // namespace shale

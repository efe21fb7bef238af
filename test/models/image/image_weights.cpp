// Imports and exports weights of torchvision and timm. test/fixtures/make_images.py made the names,
// shapes and logits of images/weights.json.
#include <algorithm>
#include <cmath>

#include "shale/base/error.h"
#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/image/image_weights.h"
#include "shale/runtime/io/safetensors_writer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"
#include "shale/test/support/numbers.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

using models::ImageModelConfig;
using models::ImageWeights;
using models::WeightNames;

const Json& fixture() {
  static const Json data = [] { return json_file(fixture_path("images/weights.json")); }();
  return data;
}

struct Case {
  explicit Case(const std::string& case_name)
      : name(case_name), data(fixture()[name]), sizes(data["config"]) {
    config = models::find_image_preset(name == "resnet18" ? "resnet18" : "vit-nano").model;
    if (config.family == "vit") {
      config.layers = sizes["layers"].integer(), config.width = sizes["width"].integer();
      config.heads = sizes["heads"].integer(), config.patch = sizes["patch"].integer();
    }
    config.classes = sizes["classes"].integer();
    config.pixels = sizes["pixels"].integer();
  }
  uint32_t seed() const { return sizes["seed"].get<uint32_t>(); }

  std::string name;
  const Json& data;
  const Json& sizes;
  ImageModelConfig config;
};

bool ends(const std::string& name, const char* with) {
  return name.ends_with(with);
}

// Returns the values of a tensor of a state dict, by the script's formula.
std::vector<float> values_of(const std::string& name, const Shape& shape, uint32_t seed) {
  float base = 0, scale = 0.25f;
  if (shape.ndim() == 2 || shape.ndim() == 4) {
    scale = float(std::sqrt(24 / double(shape.numel() / shape[0])));
  } else if (shape.ndim() == 1 && (ends(name, ".weight") || ends(name, ".running_var"))) {
    base = 1, scale = 0.5f;
  }
  const Formula formula(name, seed);
  std::vector<float> values(size_t(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = formula.value(int64_t(i), base, scale);
  return values;
}

// Writes the state dict of a case; `change` may modify the list of its tensors first.
std::string write_weights(const TempDir& dir, const Case& of,
                          const std::function<void(std::vector<SafetensorsSpec>&)>& change = {}) {
  std::vector<SafetensorsSpec> specs;
  for (const Json& tensor : of.data["tensors"]) {
    specs.push_back({tensor[0].text(), tensor[1] == "F32" ? DType::kF32 : DType::kI64,
                     tensor[2].get<std::vector<int64_t>>()});
  }
  if (change) change(specs);
  const std::string path = dir.file("weights.safetensors");
  SafetensorsWriter writer(path, specs);
  for (const SafetensorsSpec& spec : specs) {
    if (spec.dtype == DType::kI64) {
      const int64_t batches = 3;
      writer.write(std::as_bytes(std::span(&batches, 1)));
    } else {
      const std::vector<float> values = values_of(spec.name, Shape(spec.shape), of.seed());
      writer.write(std::as_bytes(std::span(values)));
    }
  }
  writer.commit();
  return path;
}

// A model made on one rank.
struct Made {
  explicit Made(const ImageModelConfig& config)
      : context(small_context()),
        model(models::make_image_model(config)),
        parallel(*model, model->blocks(), context, *group, {}) {}

  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context;
  std::unique_ptr<models::ImageModel> model;
  comm::DataParallel parallel;
};

Tensor images_of(Context& context, const Case& of) {
  const int64_t P = of.config.pixels, N = of.sizes["batch"].integer();
  const Formula pixels("images", of.seed());
  std::vector<float> values(size_t(N * P * P * 3));
  for (size_t i = 0; i < values.size(); ++i) values[i] = pixels.value(int64_t(i), 0, 4);
  return from_host<float>(context, values, {N, P, P, 3});
}

}  // namespace

TEST_CASE("weights of torchvision and timm give their logits", "[io]") {
  for (const char* name : {"resnet18", "vit", "vit_torchvision", "vit_smaller", "vit_larger"}) {
    CAPTURE(name);
    const Case of(name);
    const TempDir dir;
    const std::string path = write_weights(dir, of);
    Made made(of.config);
    ImageWeights(path, *made.model, /*new_head=*/false).load(*made.model, made.parallel, 0);
    const Inference inference(made.context);
    const std::vector<float> got = to_host<float>(made.model->logits(images_of(made.context, of)));
    std::vector<double> want;
    for (const Json& row : of.data["logits"]) {
      for (const Json& value : row) want.push_back(value.real());
    }
    // The limit is that of image_oracle.cpp.
    const double allowed = std::max(1e-6, 8 * of.data["f32_deviation"]["logits"].get<double>());
    CHECK(max_error(got, want) <= allowed * max_abs(want));
  }
}

TEST_CASE("exported image weights are those that came in, to the bit", "[io]") {
  for (const char* name : {"resnet18", "vit", "vit_torchvision"}) {
    CAPTURE(name);
    const Case of(name);
    const TempDir dir;
    const std::string path = write_weights(dir, of);
    Made made(of.config);
    ImageWeights(path, *made.model, false).load(*made.model, made.parallel, 0);
    const bool is_torchvision = of.name == "vit_torchvision";
    const std::string out = dir.file("out");
    models::export_image_model(
        {.folder = out,
         .names = is_torchvision ? WeightNames::kTorchvision : WeightNames::kTimm,
         .preset = of.config.family == "vit" ? "vit-nano" : "resnet18",
         .classes = std::vector<std::string>(7, "a class"),
         .augmentation = {.pixels = of.config.pixels}},
        *made.model, made.parallel, /*is_main=*/true);
    const SafetensorsFolder before(path), after(out);
    size_t counts = 0;
    for (const auto& [tensor, stored] : before.tensors()) {
      CAPTURE(tensor);
      if (ends(tensor, ".num_batches_tracked")) {
        ++counts;
        continue;
      }
      const auto* const found = after.find(tensor);
      REQUIRE(found != nullptr);
      CHECK(found->entry->shape == stored.entry->shape);
      CHECK(std::ranges::equal(found->bytes(), stored.bytes()));
    }
    CHECK(after.tensors().size() == before.tensors().size() - counts);
    const std::string config_path = out + "/config.json";
    CHECK(std::filesystem::exists(config_path) == !is_torchvision);
    if (is_torchvision) continue;
    const Json config = json_file(config_path);
    CHECK(config["num_classes"] == 7);
    CHECK(config["pretrained_cfg"]["input_size"] == Json({3, 64, 64}));
  }
}

TEST_CASE("image weights that do not fit are listed by name", "[io]") {
  const Case of("vit");
  const auto model = models::make_image_model(of.config);
  const auto refused = [&](const std::function<void(std::vector<SafetensorsSpec>&)>& change) {
    const TempDir dir;
    const std::string path = write_weights(dir, of, change);
    return message_of<DataError>([&] { ImageWeights(path, *model, false); });
  };
  const auto find = [](std::vector<SafetensorsSpec>& specs, std::string_view name) {
    return std::find_if(specs.begin(), specs.end(),
                        [&](const SafetensorsSpec& spec) { return spec.name == name; });
  };
  CHECK(contains(refused([&](auto& specs) {
                   specs.push_back({"fc_norm.weight", DType::kF32, {4}});
                 }),
                 "fc_norm.weight is F32[4], unknown in this model"));
  CHECK(contains(refused([&](auto& specs) { specs.erase(find(specs, "blocks.2.mlp.fc1.bias")); }),
                 "blocks.2.mlp.fc1.bias is missing, expected [768]"));
  CHECK(contains(refused([&](auto& specs) { find(specs, "norm.bias")->shape = {5}; }),
                 "norm.bias is F32[5], expected F32, BF16 or F16 [192]"));
  // 16 positions match neither 4 x 4 patches plus a class token, nor another square grid plus a
  // class token.
  CHECK(contains(refused([&](auto& specs) {
                   find(specs, "pos_embed")->shape = {1, 16, 192};
                 }),
                 "pos_embed is F32[1,16,192], expected"));
  CHECK(contains(refused([&](auto& specs) {
                   find(specs, "head.weight")->shape = {1000, 192};
                   find(specs, "head.bias")->shape = {1000};
                 }),
                 "use --new-head for a new classifier"));
}

TEST_CASE("a new head keeps its initial values, the rest is loaded", "[io]") {
  const Case of("vit_torchvision");
  const TempDir dir;
  const std::string path = write_weights(dir, of, [](std::vector<SafetensorsSpec>& specs) {
    for (SafetensorsSpec& spec : specs) {
      if (spec.name.starts_with("heads.")) spec.shape[0] = 1000;
    }
  });
  constexpr uint64_t kSeed = 0;  // seed of Made's initial values
  Made made(of.config);
  const auto values = [&](const char* name) {
    return to_host<float>(made.parallel.full_tensor(*made.model->find_parameter(name)));
  };
  const std::vector<float> head = values("head.weight"), qkv = values("blocks.0.attn.qkv.weight");
  ImageWeights(path, *made.model, /*new_head=*/true).load(*made.model, made.parallel, kSeed);
  CHECK(values("head.weight") == head);
  CHECK(values("blocks.0.attn.qkv.weight") != qkv);
}

TEST_CASE("weights for pixels that are normalised otherwise are refused", "[io]") {
  const TempDir dir;
  const Augmentation ours;
  const auto check = [&](const std::string& text) {
    static_cast<void>(dir.write("config.json", text));
    models::check_normalisation(dir.path().string(), ours);
  };
  check(R"({"architecture": "resnet18"})");
  check(R"({"pretrained_cfg": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}})");
  for (const char* text :
       {R"({"pretrained_cfg": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}})",
        R"({"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]})"}) {
    CHECK(contains(message_of<ConfigError>([&] { check(text); }),
                   "use --mean 0.5,0.5,0.5 --std 0.5,0.5,0.5"));
  }
}

TEST_CASE("weights are read from a file of torch.save", "[io]") {
  const Case of("vit");
  Made made(of.config);
  // The file belongs to another model. The error shows the file's tensor names, so the file was
  // read.
  CHECK(contains(message_of<DataError>([&] {
                   ImageWeights(fixture_path("checkpoints/state_dict.pt"), *made.model, false);
                 }),
                 "0.weight is F32[3,2], unknown in this model"));
}

}  // namespace shale::test

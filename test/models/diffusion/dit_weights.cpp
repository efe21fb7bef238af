// Tests files with weights of diffusion transformers. Exported weights are imported unchanged.
// Names and config.json in diffusers' format match those of diffusers' own model
// (test/fixtures/make_dit.py). Files that do not fit are errors.
#include "shale/models/diffusion/dit_weights.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "shale/base/error.h"
#include "shale/comm/world.h"
#include "shale/runtime/io/safetensors_writer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

using models::DitConfig;
using models::DitVariant;
using models::DitWeights;

Json fixture() {
  return json_file(fixture_path("images/dit_diffusers.json"));
}

// The model of the fixture.
DitConfig small(DitVariant variant) {
  return {.pixels = 8,
          .channels = 4,
          .patch = 2,
          .layers = 2,
          .width = 48,
          .heads = 3,
          .classes = 5,
          .variant = variant};
}

std::vector<float> values_of(const Parameter& parameter) {
  const Formula formula(parameter.full_name(), 5);
  std::vector<float> values;
  for (int64_t e = 0; e < parameter.numel(); ++e) values.push_back(formula.value(e, 0, 1));
  return values;
}

// Writes a model with the values of values_of().
void write_model(const std::string& folder, DitVariant variant) {
  comm::World world(0, nullptr);
  const auto group = world.group();
  Context context(small_context());
  models::Dit model(small(variant));
  comm::DataParallel parallel(model, model.blocks(), context, *group, {});
  parallel.load([&](const Parameter& parameter, int64_t first_row, const View& to) {
    const std::vector<float> values = values_of(parameter);
    const int64_t cols = parameter.numel() / parameter.shape[0];
    std::copy_n(values.begin() + first_row * cols, to.numel(), to.as<float>());
  });
  models::export_dit(folder, model, parallel, /*is_main=*/true);
}

// The tensors of a file, which a test may change and write again.
using Stored = std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>>;
Stored stored_in(const std::string& path) {
  const SafetensorsFile file(path);
  Stored all;
  for (const SafetensorsEntry& entry : file.entries()) {
    const View view = file.view(entry);
    all[entry.name] = {entry.shape, {view.as<float>(), view.as<float>() + view.numel()}};
  }
  return all;
}
void write_stored(const std::string& path, const Stored& tensors) {
  std::vector<SafetensorsSpec> specs;
  for (const auto& [name, tensor] : tensors) specs.push_back({name, DType::kF32, tensor.first});
  SafetensorsWriter file(path, specs);
  for (const auto& [name, tensor] : tensors) file.write(std::as_bytes(std::span(tensor.second)));
  file.commit();
}

}  // namespace

TEST_CASE("weights of diffusion transformers are read as they were written") {
  for (const DitVariant variant : {DitVariant::kPaper, DitVariant::kDiffusers}) {
    const TempDir dir;
    write_model(dir.path(), variant);
    const models::Dit model(small(variant));
    const DitWeights weights(dir.path(), model);
    for (const Parameter* parameter : model.parameters()) {
      CAPTURE(parameter->full_name());
      const std::vector<float> want = values_of(*parameter);
      std::vector<float> all(want.size());
      weights.read(*parameter, 0, make_view(all.data(), parameter->shape));
      CHECK(all == want);
      // Reads from the second row on. The range begins in one stored tensor and may end in another.
      const int64_t cols = parameter->numel() / parameter->shape[0];
      Shape rest = parameter->shape;
      rest[0] -= 1;
      std::vector<float> some(size_t(rest.numel()));
      weights.read(*parameter, 1, make_view(some.data(), rest));
      CHECK(std::equal(some.begin(), some.end(), want.begin() + cols));
    }
  }
}

TEST_CASE("diffusers' names, shapes and config.json are its own") {
  const TempDir dir;
  write_model(dir.path(), DitVariant::kDiffusers);
  const Json want = fixture();
  const Stored found = stored_in(dir.file(models::kDiffusersWeights));
  CHECK(found.size() == want["stored"].size());
  for (const auto& [name, tensor] : found) {
    CAPTURE(name);
    REQUIRE(want["stored"].contains(name));
    CHECK(tensor.first == want["stored"][name].get<std::vector<int64_t>>());
  }
  // Shale keeps queries, keys and values as rows of one matrix.
  const models::Dit model(small(DitVariant::kDiffusers));
  const std::vector<float> qkv = values_of(*model.find_parameter("blocks.1.attn.qkv.weight"));
  const std::vector<float>& keys = found.at("transformer_blocks.1.attn1.to_k.weight").second;
  CHECK(std::equal(keys.begin(), keys.end(), qkv.begin() + int64_t(qkv.size() / 3)));
  const Json config = json_file(dir.file("config.json"));
  for (const auto& [key, value] : config.items()) {
    CAPTURE(key);
    if (key != "_class_name") CHECK(want["stored_config"][key] == value);
  }
}

TEST_CASE("stored weights that do not fit a diffusion transformer are refused") {
  const TempDir dir;
  write_model(dir.path(), DitVariant::kDiffusers);
  const auto refusal = [&](const models::Dit& model) {
    return message_of<DataError>([&] { DitWeights(dir.path(), model); });
  };
  DitConfig other = small(DitVariant::kDiffusers);
  other.layers = 3;
  CHECK(contains(refusal(models::Dit(other)), "num_layers is 2, expected 3"));
  const models::Dit model(small(DitVariant::kDiffusers));
  const std::string path = dir.file(models::kDiffusersWeights);
  const Stored right = stored_in(path);
  const auto refuses = [&](const Stored& wrong, const std::string& words) {
    write_stored(path, wrong);
    const std::string message = refusal(model);
    CAPTURE(message);
    CHECK(contains(message, words));
  };
  const std::string copy = "transformer_blocks.1.norm1.emb.timestep_embedder.linear_2.bias";
  Stored wrong = right;
  wrong[copy].second[3] += 1;
  refuses(wrong, copy + " differs from transformer_blocks.0");
  wrong = right;
  wrong.erase("proj_out_1.bias");
  refuses(wrong, "proj_out_1.bias is missing, expected [96]");
  wrong = right;
  wrong["proj_out_3.bias"] = {{1}, {0}};
  refuses(wrong, "unknown in this model");
}

// dit.pt has averaged weights, by the formula of make_checkpoints.py, and other weights that must
// be ignored.
TEST_CASE("a checkpoint of DiT's training program gives its averaged weights") {
  const models::Dit model(
      {.pixels = 4, .channels = 1, .patch = 2, .layers = 1, .width = 16, .heads = 2, .classes = 3});
  const DitWeights weights(fixture_path("checkpoints/dit.pt"), model);
  std::vector<std::string> names{"pos_embed"};
  for (const Parameter* parameter : model.parameters()) names.push_back(parameter->full_name());
  std::sort(names.begin(), names.end());
  for (const Parameter* parameter : model.parameters()) {
    CAPTURE(parameter->full_name());
    const auto place = std::find(names.begin(), names.end(), parameter->full_name());
    std::vector<float> found(size_t(parameter->numel()));
    weights.read(*parameter, 0, make_view(found.data(), parameter->shape));
    for (size_t i = 0; i < found.size(); ++i) {
      const double wave = std::sin(double(i) * 0.37 + double(place - names.begin()));
      REQUIRE(found[i] == Approx(wave * 0.5).margin(1e-6));
    }
  }
}

TEST_CASE("files of torch.save with other content are refused by what they name") {
  const TempDir dir;
  const models::Dit model(small(DitVariant::kPaper));
  const auto refusal = [&](const std::string& path) {
    return message_of<DataError>([&] { DitWeights(path, model); });
  };
  CHECK(contains(refusal(fixture_path("checkpoints/dit.pt")), "the weights do not fit the model"));
  CHECK(contains(refusal(fixture_path("checkpoints/module.pt")), "torch.nn."));
  dir.write("diffusion_pytorch_model.bin", "PK");
  CHECK_THROWS_AS(DitWeights(dir.path(), model), MissingInputError);  // no config.json
  CHECK_THROWS_AS(DitWeights(dir.file("nothing"), model), MissingInputError);
}

}  // namespace shale::test

#include "shale/models/gpt2/trainer_files.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/models/language/stored_model.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"
#include "shale/test/support/training.h"

namespace shale {

using test::contains;
using test::fixture_path;
using test::message_of;
using test::read_file;
using test::TempDir;

namespace {

// Checks the logits of the model in this file, or folder, against those of its trainer's code.
void check_logits(const std::string& path, const std::string& expected_file, double margin) {
  CAPTURE(path);
  const Json expected = test::json_file(fixture_path("checkpoints/" + expected_file));
  const auto stored = models::open_stored_model(path);
  const models::LanguageModelConfig& config = stored->config();
  comm::World world{0, nullptr};
  const std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context{test::small_context()};
  const auto model = models::make_language_model(config);
  comm::DataParallel parallel(*model, model->blocks(), context, *group, {});
  models::load_stored_model(*stored, parallel);
  std::vector<int32_t> tokens;
  for (const auto& row : expected["ids"]) {
    for (const Json& token : row) tokens.push_back(token.get<int32_t>());
  }
  models::KvCache cache;
  const Tensor ids = from_host<int32_t>(context, tokens, {2, int64_t(tokens.size()) / 2});
  const std::vector<float> logits = to_host<float>(model->next_logits(ids, cache));
  for (size_t row = 0; row < 2; ++row) {
    for (size_t token = 0; token < size_t(config.vocab); ++token) {
      REQUIRE(logits[row * size_t(config.padded_vocab) + token] ==
              Approx(expected["last_logits"][row][token].get<double>()).margin(margin));
    }
  }
}

std::string file_of(const char* name) {
  return fixture_path(cat("checkpoints/", name));
}

}  // namespace

// Logits are near 1 after two layers. Each is a sum of about 100 terms, which f32 rounds by 2^-24
// each.
TEST_CASE("a ckpt.pt of nanoGPT gives the logits that nanoGPT computed", "[io]") {
  check_logits(file_of("nanogpt.pt"), "nanogpt_expected.json", 4e-6);
  check_logits(file_of("nanogpt_bias.pt"), "nanogpt_bias_expected.json", 4e-6);
  const TempDir out;  // the folder of a run
  std::filesystem::copy_file(file_of("nanogpt.pt"), out.file("ckpt.pt"));
  check_logits(out.path().string(), "nanogpt_expected.json", 4e-6);
}

TEST_CASE("a model of llm.c gives the logits that its reference computed", "[io]") {
  check_logits(file_of("llmc_fp32.bin"), "llmc_expected.json", 4e-6);
  // bf16 rounds each weight by up to 2^-9 of itself. Logits have a few terms near 1.
  check_logits(file_of("llmc_bf16.bin"), "llmc_expected.json", 6e-2);
  check_logits(file_of("llmc_llama_fp32.bin"), "llmc_llama_expected.json", 4e-6);
  check_logits(file_of("llmc_llama_bf16.bin"), "llmc_llama_expected.json", 6e-2);
}

TEST_CASE("biases that a nanoGPT model does not have are zero", "[io]") {
  const auto stored = models::open_stored_model(file_of("nanogpt.pt"));
  std::vector<float> bias(12, 1.f);
  stored->read("h.0.attn.c_attn.bias", make_view(bias.data(), {12}));
  CHECK(bias == std::vector<float>(12, 0.f));
}

namespace {

// Replaces the 32-bit integer number `word` of a file by `value`, and returns the error message.
std::string complaint(std::string bytes, size_t word, int32_t value) {
  std::memcpy(bytes.data() + 4 * word, &value, sizeof value);
  const TempDir dir;
  const std::string path = dir.write("model.bin", bytes);
  return message_of<DataError>([&] { models::open_stored_model(path); });
}

}  // namespace

TEST_CASE("a malformed model of llm.c is refused", "[io]") {
  const std::string good = read_file(file_of("llmc_bf16.bin"));
  CHECK(contains(complaint(good, 0, 7), "expected a ckpt.pt of nanoGPT, a model_*.bin of llm.c"));
  CHECK(contains(complaint(good, 1, 4), "version 4 of llm.c's models, expected 3 or 5"));
  CHECK(contains(complaint(good, 1, 3), "which end before"));
  CHECK(contains(complaint(good, 4, 0), "a size of the model is 0"));
  CHECK(contains(complaint(good, 4, 1 << 20), "at most 10000 layers"));
  CHECK(contains(complaint(good, 5, 3), "expected a multiple of the 3 heads"));
  CHECK(contains(complaint(good, 7, 8), "the embedding has 8 rows"));
  CHECK(contains(complaint(good + "x", 9, 0), cat("expected ", good.size())));
}

TEST_CASE("a malformed Llama 3 of llm.c is refused", "[io]") {
  const std::string good = read_file(file_of("llmc_llama_bf16.bin"));
  CHECK(contains(complaint(good, 1, 4), "version 4 of llm.c's models, expected 3 or 5"));
  CHECK(contains(complaint(good, 1, 3),
                 "values after the header, expected 2128 plus a multiple of 96"));
  CHECK(contains(complaint(good, 4, 0), "n_layer is 0, expected 1 to 8192"));
  CHECK(contains(complaint(good, 7, 1 << 21), "n_embd is 2097152, expected 1 to 1048576"));
  CHECK(contains(complaint(good, 5, 3), "n_embd is 16, expected a multiple of the 3 heads"));
  CHECK(contains(complaint(good, 6, 3), "a multiple of the 3 key-value heads"));
  CHECK(contains(complaint(good, 14, 4), "a Llama 4, expected a Llama 3"));
  CHECK(contains(complaint(good + "xx", 9, 0),
                 "values after the header, expected 2128 plus a multiple of 96"));
  CHECK(contains(complaint(good + "x", 9, 0), cat("expected ", good.size())));
}

TEST_CASE("linear weights are read as [in, out] or [out, in], by the first of them", "[io]") {
  std::vector<Gpt2Tensor> tensors = gpt2_tensors({.layers = 1, .width = 4, .heads = 2});
  const auto orientation_of = [&](const char* name, const std::vector<int64_t>& shape) {
    std::vector<Gpt2Tensor> found = tensors;
    StoredTensors files;
    files.add({name, find_safetensors_dtype("F32"), shape, {}});
    find_orientation(files, found);
    return std::any_of(found.begin(), found.end(),
                       [](const Gpt2Tensor& tensor) { return tensor.transposed; });
  };
  CHECK(orientation_of("h.0.attn.c_attn.weight", {4, 12}));
  CHECK_FALSE(orientation_of("transformer.h.0.attn.c_attn.weight", {12, 4}));
  CHECK(orientation_of("other", {12, 4}));
}

TEST_CASE("a file without sizes, and a DCP folder without them, say what to add", "[io]") {
  CHECK(contains(message_of<DataError>([&] { models::open_stored_model(file_of("types.pt")); }),
                 "other weights need the model's config.json in their folder"));
  const TempDir dir;
  static_cast<void>(dir.write(".metadata", "x"));
  CHECK(contains(
      message_of<MissingInputError>([&] { models::open_stored_model(dir.path().string()); }),
      "put the model's config.json from Hugging Face into the folder"));
}

TEST_CASE("torchtitan's checkpoints have the weights of its own converter, and its logits",
          "[io]") {
  check_logits(file_of("titan_0_2"), "titan_0_2_expected.json", 4e-6);
  for (const char* name : {"titan_0_2", "titan_main"}) {
    CAPTURE(name);
    const TempDir converted;
    std::filesystem::copy_file(file_of(name) + "/config.json", converted.file("config.json"));
    std::filesystem::copy_file(file_of(name) + "/hf.safetensors",
                               converted.file("model.safetensors"));
    const auto stored = models::open_stored_model(file_of(name));
    const auto expected = models::open_stored_model(converted.path().string());
    const auto model = models::make_language_model(stored->config());
    for (const Parameter* parameter : model->parameters()) {
      const Shape& shape = parameter->shape;
      const int64_t row = shape.numel() / shape[0];
      // All rows at once, and a few that begin inside a head.
      for (const auto& [first, rows] : {std::pair<int64_t, int64_t>{0, shape[0]}, {3, 4}}) {
        if (first + rows > shape[0]) continue;
        std::vector<float> found(size_t(rows * row), -7.f), want(size_t(rows * row), -8.f);
        Shape part = shape;
        part[0] = rows;
        stored->read(parameter->full_name(), make_view(found.data(), part), first);
        expected->read(parameter->full_name(), make_view(want.data(), part), first);
        CHECK(found == want);
      }
    }
  }
}

}  // namespace shale

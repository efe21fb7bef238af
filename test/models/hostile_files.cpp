// Rules for every reader of external text, whatever its grammar. Rules of a single format are
// tested with that format.
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/comm/checkpoint/manifest.h"
#include "shale/models/gpt2/hf.h"
#include "shale/models/llama/hf.h"
#include "shale/models/training/report/metrics.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_index.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

struct JsonReader {
  std::string name;
  std::string good;  // a valid object; `read` must also accept it with additional keys
  std::function<void(const std::string&)> read;
  size_t max_bytes;
  std::string with_fraction;  // `good`, with 2.0 in place of an integer
};

// Parses a manifest with this training state and a valid checksum.
void parse_manifest_with(const std::string& state) {
  const std::string body =
      R"({"format":"shale-checkpoint","format_version":1,"writer":"x","step":1,"state":)" + state +
      R"(,"config":{},"chunk_bytes":4096,"files":[],"tensors":{})" + "\n";
  char last[32];
  std::snprintf(last, sizeof last, ",\"crc32c\":\"%08x\"}\n",
                crc32c(std::as_bytes(std::span(body))));
  parse_checkpoint_manifest(body + last, "source");
}

const std::vector<JsonReader>& readers() {
  static const std::vector<JsonReader> all = {
      {"object", R"({"n":2})",
       [](const std::string& text) { JsonObject(text, "source").integer("n"); }, 1 << 20,
       R"({"n":2.0})"},
      {"index", R"({"weight_map":{"a":"b"}})",
       [](const std::string& text) { parse_safetensors_index(text, "source"); }, 100'000'000, ""},
      {"model",
       R"({"model_type":"gpt2","n_layer":2,"n_embd":6,"n_head":2,"vocab_size":5,)"
       R"("n_positions":7})",
       [](const std::string& text) { parse_gpt2_config(text, "source"); }, 1 << 20,
       R"({"model_type":"gpt2","n_layer":2.0,"n_embd":6,"n_head":2,"vocab_size":5,)"
       R"("n_positions":7})"},
      {"llama",
       R"({"model_type":"llama","num_hidden_layers":2,"hidden_size":8,"vocab_size":5,)"
       R"("num_attention_heads":2})",
       [](const std::string& text) { models::parse_llama_config(text, "source"); }, 1 << 20,
       R"({"model_type":"llama","num_hidden_layers":2.0,"hidden_size":8,"vocab_size":5,)"
       R"("num_attention_heads":2})"},
      {"metrics", R"({"step":2,"val_loss":1})",
       [](const std::string& text) { parse_metrics(text + "\n", "source"); }, 16384,
       R"({"step":2.0,"val_loss":1})"},
      {"manifest", R"({"n":2})", [](const std::string& text) { parse_manifest_with(text); },
       kMaxManifestBytes, ""},
      {"options", R"({"n":2})",
       [](const std::string& text) {
         int64_t n = 1, k = 0;
         ConfigSpec spec("x", "x");
         spec.add("n", n, "n");
         spec.add("k", k, "k");
         try {
           spec.read_json(text, "source");
         } catch (const ConfigError& error) {  // other readers throw DataError
           throw DataError(error.what());
         }
       },
       1 << 20, R"({"n":2.0})"}};
  return all;
}

// Returns the error message, which must be one clear line that names the source.
std::string complaint(const JsonReader& reader, const std::string& text) {
  const std::string message = message_of<DataError>([&] { reader.read(text); });
  CHECK(message.starts_with("source:"));
  CHECK(message.size() < 1000);
  CHECK(std::none_of(message.begin(), message.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
  return message;
}

}  // namespace

TEST_CASE("every reader of JSON takes its good text, and no text that breaks a rule", "[io]") {
  const std::string deep = std::string(65, '[') + std::string(65, ']');
  // Invalid members, which are inserted before those of the valid text.
  const std::vector<std::pair<std::string, std::string>> rules = {
      {"a key twice", R"("k":1,"k":1,)"},
      {"a key twice, once escaped", R"("k":1,"\u006b":1,)"},
      {"too deep", "\"k\":" + deep + ","},
      {"bytes that are not UTF-8", "\"\xff\":1,"},
      {"an overlong form of a character", "\"\xc0\xaf\":1,"},
      {"half of a surrogate pair", R"("\ud800":1,)"},
      {"a control character that is not escaped", "\"a\tb\":1,"},
      {"a number beyond double", R"("k":1e999,)"},
      {"a word that is no value", R"("k":NaN,)"},
      {"no value", R"("k":,)"},
  };
  for (const JsonReader& reader : readers()) {
    CAPTURE(reader.name);
    CHECK_NOTHROW(reader.read(reader.good));
    // A valid additional member is accepted, so the errors below come from the rules.
    CHECK_NOTHROW(reader.read("{\"k\":1," + reader.good.substr(1)));
    for (const auto& [rule, members] : rules) {
      CAPTURE(rule);
      complaint(reader, "{" + members + reader.good.substr(1));
    }
    complaint(reader, reader.good + "x");
    complaint(reader, reader.good + reader.good);
    complaint(reader, "[" + reader.good + "]");
    complaint(reader, reader.good.substr(0, reader.good.size() - 1));
    complaint(reader, "");
    complaint(reader, "null");
  }
}

TEST_CASE("no reader of JSON takes a fraction where an integer belongs", "[io]") {
  for (const JsonReader& reader : readers()) {
    CAPTURE(reader.name);
    if (!reader.with_fraction.empty())
      CHECK(contains(complaint(reader, reader.with_fraction), "2.0"));
  }
}

TEST_CASE("every reader of JSON stops at its size limit, not behind it", "[io]") {
  for (const JsonReader& reader : readers()) {
    // Skips readers whose limit would need a text of 100 MB.
    if (reader.max_bytes > 1 << 20) continue;
    CAPTURE(reader.name);
    const std::string full = reader.good + std::string(reader.max_bytes - reader.good.size(), ' ');
    CHECK_NOTHROW(reader.read(full));
    CHECK(contains(complaint(reader, full + ' '), cat("at most ", reader.max_bytes)));
  }
}

TEST_CASE("an index of more values than tensors can be is not built up in memory", "[io]") {
  std::string text = "{\"weight_map\":{},\"x\":[";
  for (int i = 0; i < 201'000; ++i) text += "[],";
  CHECK(contains(message_of<DataError>([&] { parse_safetensors_index(text + "0]}", "source"); }),
                 "more than 201000 values"));
}

TEST_CASE("a pipe in the place of a model's file is refused, not waited for", "[io]") {
  const test::TempDir dir;
  REQUIRE(::mkfifo(dir.file("config.json").c_str(), 0600) == 0);
  CHECK(contains(message_of<DataError>([&] { load_gpt2_config(dir.path()); }), "config.json"));
  REQUIRE(::mkfifo(dir.file(kSafetensorsIndexFile).c_str(), 0600) == 0);
  CHECK(contains(message_of<DataError>([&] { SafetensorsFolder(dir.path()); }), "index.json"));
  REQUIRE(::mkfifo(dir.file(kSafetensorsSingleFile).c_str(), 0600) == 0);
  CHECK_THROWS_AS(SafetensorsFolder(dir.path()), DataError);
  REQUIRE(::mkfifo(dir.file("metrics.jsonl").c_str(), 0600) == 0);
  CHECK_THROWS_AS(read_metrics(dir.file("metrics.jsonl")), DataError);
}

// Damages each file of a folder from transformers at random: changes, removes, inserts bytes.
TEST_CASE("no random damage of a model's folder is more than an error with the file's name",
          "[io]") {
  const test::TempDir dir;
  const std::string good = test::fixture_path("gpt2/hf_tiny");
  const std::string config = test::read_file(good + "/config.json");
  const std::string weights = test::read_file(good + "/" + kSafetensorsSingleFile);
  std::mt19937 random(1);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random()) % bound; };
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string damaged_config = config, damaged_weights = weights;
    std::string& text = i % 3 == 0 ? damaged_config : damaged_weights;
    // Damages only the first 3000 bytes: the rest of the weights is mostly numbers, in which every
    // bit pattern is valid.
    const size_t extent = std::min(text.size(), size_t{3000});
    const size_t place = below(extent);
    if (i % 4 == 0) text.erase(place, 1 + below(20));
    if (i % 4 == 1) text.insert(place, 1 + below(20), static_cast<char>(below(256)));
    if (i % 4 == 2) text[place] = static_cast<char>(below(256));
    if (i % 4 == 3) text.resize(below(text.size()));
    dir.write("config.json", damaged_config);
    dir.write(kSafetensorsSingleFile, damaged_weights);
    CAPTURE(i, place);
    try {
      const HfGpt2Config model = load_gpt2_config(dir.path());
      const Gpt2Weights loaded(dir.path(), model);
      std::vector<float> row(static_cast<size_t>(model.width));
      loaded.read("wte.weight", make_view(row.data(), {1, model.width}));
    } catch (const DataError& error) {
      ++refused;
      CHECK(contains(error.what(), dir.path().string()));
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(refused > 300);
}

TEST_CASE("no index of a model's folder leads out of it", "[io]") {
  const test::TempDir outside, dir;
  outside.write("secret.safetensors", test::read_file(test::fixture_path("official.safetensors")));
  std::filesystem::create_symlink(outside.path(), dir.file("link"));
  const std::string path = outside.file("secret.safetensors");
  const std::string up = "../" + outside.path().filename().string() + "/secret.safetensors";
  for (const std::string& name :
       {path, up, std::string("link/secret.safetensors"), std::string("./x"), std::string("."),
        std::string(".."), std::string(""), std::string("a\\u0000b")}) {
    dir.write(kSafetensorsIndexFile, "{\"weight_map\":{\"a\":\"" + name + "\"}}");
    CAPTURE(name);
    CHECK(contains(message_of<DataError>([&] { SafetensorsFolder(dir.path()); }), "index.json"));
  }
}

TEST_CASE("names from a file cannot break the line or drive the terminal", "[io]") {
  const std::string message = message_of<DataError>([] {
    parse_safetensors_index("{\"weight_map\":{\"a\\n\\u001b[2J\\u009b\":\"../b\"}}", "source");
  });
  CHECK(contains(message, "tensor 'a\\x0a\\x1b[2J\\x9b'"));
}

}  // namespace shale

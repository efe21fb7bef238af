#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "shale/base/error.h"
#include "shale/models/llama/hf.h"
#include "shale/models/llama/variant.h"
#include "shale/models/weights/hf_export.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::fixture_path;
using test::message_of;
using test::TempDir;
using Keys = std::map<std::string, std::string>;  // members of a config.json, values as JSON

const char* const kFolders[] = {"llama_tied", "llama_untied_llama3", "llama_yarn", "mistral",
                                "qwen2",      "qwen2_window",        "qwen3",      "olmo2",
                                "mixtral",    "olmoe",               "qwen3_moe"};

std::string folder_of(const std::string& name) {
  return fixture_path("llama/" + name);
}

auto fields(const LanguageModelConfig& c) {
  return std::make_tuple(c.family, c.layers, c.width, c.heads, c.vocab, c.padded_vocab, c.context,
                         c.norm_eps, c.tied, c.kv_heads, c.head_size, c.hidden, c.attention_bias,
                         c.mlp_bias, c.window, c.full_layers, c.experts, c.active_experts,
                         c.renormalise);
}

void check_same(const LanguageModelConfig& found, const LanguageModelConfig& want) {
  CHECK(fields(found) == fields(want));
  CHECK(found.rope == want.rope);
}

LanguageModelConfig small(std::string_view family) {
  LanguageModelConfig config;
  config.family = family;
  config.layers = 2;
  config.width = 6;
  config.heads = 4;
  config.kv_heads = 2;
  config.head_size = 4;
  config.hidden = 10;
  config.vocab = 5;
  config.padded_vocab = 128;
  config.context = 7;
  config.tied = false;
  config.attention_bias = family == "qwen2";
  if (llama_variant(family).has_experts()) {
    config.experts = 3;
    config.active_experts = 2;
    config.renormalise = family != "olmoe";
  }
  return config;
}

// Returns the minimal config.json of a family.
Keys least(const std::string& family) {
  return {{"model_type", "\"" + family + "\""},
          {"num_hidden_layers", "2"},
          {"hidden_size", "128"},
          {"num_attention_heads", "32"},
          {"vocab_size", "300"}};
}

LanguageModelConfig parse(const Keys& keys) {
  std::string text;
  for (const auto& [key, value] : keys) {
    if (!value.empty()) text += cat(text.empty() ? "{" : ",", "\"", key, "\":", value);
  }
  return parse_llama_config(text + "}", "config.json");
}

Keys with(Keys keys, const Keys& more) {
  for (const auto& [key, value] : more) keys[key] = value;
  return keys;
}

struct NamedTensor {
  SafetensorsSpec spec;
  std::vector<float> values;
};

// Returns values that differ in every element of a model.
std::vector<float> values_of(const HfTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(Shape(tensor.shape).numel()));
  const auto base = static_cast<float>(std::hash<std::string>()(tensor.name) % 1000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = base + static_cast<float>(i) / 1024;
  return values;
}

// Writes a model's files, with changes.
void write_folder(const std::string& folder, const LanguageModelConfig& config,
                  const std::function<void(std::vector<NamedTensor>&)>& change = {}) {
  std::vector<NamedTensor> tensors;
  for (const HfTensor& tensor : llama_tensors(config)) {
    tensors.push_back(
        {{llama_layout().file_name(tensor.name), DType::kF32, tensor.shape}, values_of(tensor)});
  }
  if (change) change(tensors);
  std::vector<SafetensorsSpec> specs;
  for (const NamedTensor& tensor : tensors) specs.push_back(tensor.spec);
  SafetensorsFolderWriter writer(folder, specs);
  for (const NamedTensor& tensor : tensors) writer.write(std::as_bytes(std::span(tensor.values)));
  writer.commit();
}

HfWeights weights_of(const std::string& folder, const LanguageModelConfig& config) {
  return HfWeights(folder, llama_tensors(config), llama_layout());
}

std::vector<float> read_all(const HfWeights& weights, const HfTensor& tensor) {
  std::vector<float> values(static_cast<size_t>(Shape(tensor.shape).numel()), -7.f);
  weights.read(tensor.name, make_view(values.data(), Shape(tensor.shape)));
  return values;
}

}  // namespace

TEST_CASE("config.json of transformers 5 is read, for every family", "[io]") {
  LanguageModelConfig want;
  want.layers = 2;
  want.width = 32;
  want.heads = 4;
  want.kv_heads = 2;
  want.head_size = 8;
  want.hidden = 40;
  want.vocab = 61;
  want.padded_vocab = 128;
  want.context = 64;
  want.norm_eps = 1e-3f;
  want.family = "llama";
  check_same(load_llama_config(folder_of("llama_tied")), want);
  LanguageModelConfig other = want;
  other.rope = {.theta = 50, .scaling = RopeScaling::kYarn, .factor = 2, .original_context = 32};
  check_same(load_llama_config(folder_of("llama_yarn")), other);
  other.tied = false;
  other.attention_bias = true;
  other.rope.scaling = RopeScaling::kLlama3;
  check_same(load_llama_config(folder_of("llama_untied_llama3")), other);
  other = want;
  other.family = "qwen2";
  other.attention_bias = true;
  check_same(load_llama_config(folder_of("qwen2")), other);
  other = want;
  other.family = "qwen3";
  other.head_size = 12;
  check_same(load_llama_config(folder_of("qwen3")), other);
  other = want;
  other.family = "olmo2";
  other.tied = false;
  check_same(load_llama_config(folder_of("olmo2")), other);
  LanguageModelConfig mixture = other;
  mixture.family = "olmoe";
  mixture.hidden = 16, mixture.experts = 6, mixture.active_experts = 3;
  check_same(load_llama_config(folder_of("olmoe")), mixture);
  mixture.family = "mixtral";
  mixture.tied = mixture.renormalise = true;
  mixture.hidden = 24, mixture.experts = 4, mixture.active_experts = 2;
  mixture.rope.theta = 1e6;
  check_same(load_llama_config(folder_of("mixtral")), mixture);
  mixture.family = "qwen3_moe";
  mixture.head_size = 12, mixture.hidden = 12, mixture.experts = 8;
  mixture.rope.theta = 1e4;
  check_same(load_llama_config(folder_of("qwen3_moe")), mixture);
  other.family = "mistral";
  other.kv_heads = 1;
  check_same(load_llama_config(folder_of("mistral")), other);
  CHECK_THROWS_AS(load_llama_config(folder_of("absent")), MissingInputError);
}

TEST_CASE("config.json of older versions is read", "[io]") {
  // The models are Llama 3.2 1B, and Qwen2.5 with the scaling that its model card recommends.
  const LanguageModelConfig llama =
      parse(with(least("llama"),
                 {{"rope_theta", "500000.0"},
                  {"max_position_embeddings", "131072"},
                  {"rope_scaling", R"({"factor":32.0,"high_freq_factor":4.0,"low_freq_factor":1.0,)"
                                   R"("original_max_position_embeddings":8192,)"
                                   R"("rope_type":"llama3"})"},
                  {"eos_token_id", "[128001,128008]"},
                  {"pretraining_tp", "1"},
                  {"torch_dtype", "\"bfloat16\""}}));
  CHECK(llama.rope ==
        RopeConfig{
            .theta = 5e5, .scaling = RopeScaling::kLlama3, .factor = 32, .original_context = 8192});
  const LanguageModelConfig qwen =
      parse(with(least("qwen2"),
                 {{"rope_theta", "1000000"},
                  {"use_sliding_window", "false"},
                  {"sliding_window", "131072"},
                  {"rope_scaling",
                   R"({"factor":4.0,"original_max_position_embeddings":32768,"type":"yarn"})"}}));
  CHECK(qwen.rope ==
        RopeConfig{
            .theta = 1e6, .scaling = RopeScaling::kYarn, .factor = 4, .original_context = 32768});
  const LanguageModelConfig linear =
      parse(with(least("llama"), {{"rope_scaling", R"({"type":"linear","factor":2})"}}));
  CHECK(linear.rope == RopeConfig{.scaling = RopeScaling::kLinear, .factor = 2});
}

TEST_CASE("keys that config.json lacks have the values of transformers", "[io]") {
  struct Default {
    const char* family;
    int64_t hidden, kv_heads, head_size, context;
    float norm_eps;
  };
  for (const Default& want :
       {Default{"llama", 11008, 32, 4, 2048, 1e-6f}, Default{"mistral", 14336, 8, 4, 131072, 1e-6f},
        Default{"qwen2", 22016, 32, 4, 32768, 1e-6f},
        Default{"qwen3", 22016, 32, 128, 32768, 1e-6f},
        Default{"olmo2", 11008, 32, 4, 2048, 1e-5f}}) {
    CAPTURE(want.family);
    // The window is set to null, because Mistral has a window by default.
    const LanguageModelConfig found = parse(with(least(want.family), {{"sliding_window", "null"}}));
    CHECK(found.hidden == want.hidden);
    CHECK(found.kv_heads == want.kv_heads);
    CHECK(found.head_size == want.head_size);
    CHECK(found.context == want.context);
    CHECK(found.norm_eps == want.norm_eps);
    CHECK_FALSE(found.tied);
    CHECK(found.attention_bias == (std::string(want.family) == "qwen2"));
    CHECK_FALSE(found.mlp_bias);
    CHECK(found.rope == RopeConfig{});
    for (const char* key :
         {"num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size"}) {
      const std::string message = message_of<DataError>([&] {
        parse(with(least(want.family), {{key, ""}}));
      });
      CHECK(contains(message, cat("config.json: '", key, "' missing")));
    }
  }
  const auto null_heads =
      with(least("mistral"), {{"num_key_value_heads", "null"}, {"sliding_window", "null"}});
  CHECK(parse(null_heads).kv_heads == 32);
  CHECK(parse(with(least("llama"), {{"rope_parameters", "{}"}, {"rope_theta", "3e4"}})).rope ==
        RopeConfig{.theta = 3e4});
  CHECK(parse(with(least("llama"), {{"rope_scaling", R"({"rope_type":"yarn","factor":2})"}}))
            .rope.original_context == 2048);
}

TEST_CASE("every setting survives writing and reading config.json of Llama", "[io]") {
  for (const LlamaVariant& variant : kLlamaVariants) {
    LanguageModelConfig config = small(variant.family);
    config.norm_eps = 3e-7f;
    config.tied = true;
    config.attention_bias = variant.attention_bias != AttentionBias::kNever;
    config.mlp_bias = variant.may_have_mlp_bias;
    config.window = variant.window > 0 ? 5 : 0;
    config.full_layers = variant.full_layers ? 1 : 0;
    for (const RopeConfig& rope :
         {RopeConfig{.theta = 12345.5}, RopeConfig{.scaling = RopeScaling::kLinear, .factor = 2.5},
          RopeConfig{.scaling = RopeScaling::kLlama3,
          .factor = 8,
          .original_context = 5,
          .low_freq_factor = 1.5,
          .high_freq_factor = 3},
          RopeConfig{.scaling = RopeScaling::kYarn,
          .factor = 4,
          .original_context = 3,
          .beta_fast = 16,
          .beta_slow = 2,
          .attention_factor = 1.25,
          .truncate = false}}) {
      config.rope = rope;
      const std::string text = llama_config_json(config, DType::kBF16);
      CAPTURE(text);
      check_same(parse_llama_config(text, "config.json"), config);
      CHECK(contains(text, cat("\"", variant.architecture, "\"")));
      CHECK(contains(text, "\"bfloat16\""));
    }
  }
  CHECK(contains(message_of<ConfigError>([] { llama_config_json({}, DType::kF32); }),
                 "family is gpt2, expected one of: llama mistral qwen2 qwen3 olmo2 mixtral olmoe "
                 "qwen3_moe"));
}

TEST_CASE("a config.json that would compute something else is an error that names the key",
          "[io]") {
  struct Bad {
    const char* family;
    Keys keys;
    const char* message;
  };
  const auto rope = [](const char* scaling) { return Keys{{"rope_scaling", scaling}}; };
  const std::vector<Bad> bad = {
      {"gpt2", {}, "'model_type'"},
      {"llama", {{"hidden_size", "0"}}, "'hidden_size'"},
      {"llama", {{"hidden_size", "2e2"}}, "'hidden_size'"},
      {"llama", {{"hidden_size", "100"}}, "'hidden_size'"},  // not divisible by 32 heads
      {"llama", {{"hidden_size", "96"}}, "'hidden_size'"},   // odd head size, 3
      {"llama", {{"hidden_size", "4611686018427387904"}}, "'hidden_size'"},
      {"llama", {{"num_hidden_layers", "10001"}}, "'num_hidden_layers'"},
      {"llama", {{"num_key_value_heads", "5"}}, "'num_key_value_heads'"},
      {"llama", {{"num_key_value_heads", "64"}}, "'num_key_value_heads'"},
      {"llama", {{"head_dim", "7"}}, "'head_dim'"},
      {"llama", {{"head_dim", "1000000000"}}, "'head_dim'"},
      {"llama", {{"rms_norm_eps", "0"}}, "'rms_norm_eps'"},
      {"llama", {{"rms_norm_eps", "1e-40"}}, "'rms_norm_eps'"},
      {"llama", {{"hidden_act", "\"gelu\""}}, "'hidden_act'"},
      {"llama", {{"attention_bias", "1"}}, "'attention_bias'"},
      {"llama", {{"attn_logit_softcapping", "50.0"}}, "'attn_logit_softcapping'"},
      {"llama", {{"final_logit_softcapping", "30.0"}}, "'final_logit_softcapping'"},
      {"olmo2", {{"clip_qkv", "8"}}, "'clip_qkv'"},
      {"olmoe", {{"num_experts", "4"}}, "'num_experts_per_tok' missing, expected at most"},
      {"mixtral", {{"num_local_experts", "0"}}, "'num_local_experts' is 0, expected 1 to"},
      {"mixtral", {{"num_experts_per_tok", "9"}}, "at most num_local_experts, which is 8"},
      {"mixtral", {{"router_jitter_noise", "0.1"}}, "'router_jitter_noise'"},
      {"qwen3_moe", {{"decoder_sparse_step", "2"}}, "'decoder_sparse_step' is 2, expected 1"},
      {"qwen3_moe", {{"mlp_only_layers", "[0]"}}, "'mlp_only_layers' is [0], expected none"},
      {"qwen3_moe", {{"norm_topk_prob", "1"}}, "'norm_topk_prob'"},
      {"llama", {{"quantization_config", "{}"}}, "'quantization_config'"},
      {"llama", {{"partial_rotary_factor", "0.5"}}, "'partial_rotary_factor'"},
      {"qwen2", {{"is_causal", "false"}}, "'is_causal'"},
      {"llama", {{"rope_theta", "0"}}, "'rope_theta'"},
      {"llama", {{"rope_theta", "1e300"}}, "'rope_theta'"},
      {"llama", rope("[]"), "'rope_scaling' is [], expected an object"},
      {"llama", rope(R"({"type":"dynamic","factor":2})"), "rope_scaling: 'type' is \"dynamic\""},
      {"llama", rope(R"({"rope_type":"longrope","factor":2})"), "'rope_type' is \"longrope\""},
      {"llama", rope(R"({"rope_type":"linear"})"), "rope_scaling: 'factor' missing"},
      {"llama", rope(R"({"rope_type":"linear","factor":0.5})"), "'factor' is 0.5"},
      {"llama", rope(R"({"rope_type":"llama3","factor":2})"), "'low_freq_factor'"},
      {"llama",
       rope(R"({"rope_type":"llama3","factor":2,"low_freq_factor":4,"high_freq_factor":4})"),
       "'high_freq_factor'"},
      {"llama", rope(R"({"rope_type":"yarn","factor":2,"beta_fast":1,"beta_slow":2})"),
       "'beta_fast'"},
      {"llama", rope(R"({"rope_type":"yarn","factor":2,"attention_factor":-1})"),
       "'attention_factor'"},
      {"llama", rope(R"({"rope_type":"default","partial_rotary_factor":0.5})"),
       "rope_scaling: 'partial_rotary_factor'"},
      {"qwen3", rope(R"({"full_attention":{"rope_type":"default"}})"), "'rope_scaling'"},
      {"llama", {{"rope_scaling", "{}"}, {"rope_parameters", "{}"}}, "'rope_parameters'"},
      {"mistral", {{"sliding_window", "0"}}, "'sliding_window' is 0, expected 1 to"},
      {"qwen2",
       {{"use_sliding_window", "true"}, {"max_window_layers", "-1"}},
       "'max_window_layers'"},
      {"qwen3",
       {{"use_sliding_window", "true"},
        {"layer_types", R"(["sliding_attention","full_attention"])"}},
       "'layer_types'"},
      {"qwen3",
       {{"use_sliding_window", "true"}, {"layer_types", R"(["full_attention"])"}},
       "'layer_types'"},
      {"qwen3", {{"use_sliding_window", "true"}, {"layer_types", "[1]"}}, "'layer_types'"},
  };
  for (const Bad& one : bad) {
    CAPTURE(one.family, one.message);
    const std::string message =
        message_of<DataError>([&] { parse(with(least(one.family), one.keys)); });
    CAPTURE(message);
    CHECK(message.starts_with("config.json: "));
    CHECK(contains(message, one.message));
  }
}

TEST_CASE("a window that no layer or no position notices is none", "[io]") {
  for (const Keys& keys : {Keys{{"sliding_window", "131072"}}, Keys{{"sliding_window", "null"}},
                           Keys{{"max_position_embeddings", "4096"}}}) {
    CHECK(parse(with(least("mistral"), keys)).window == 0);
  }
  // By default, only layers from number 28 on have a window, and this model has fewer.
  for (const Keys& keys : {Keys{}, Keys{{"use_sliding_window", "true"}},
                           Keys{{"use_sliding_window", "true"}, {"sliding_window", "32768"}},
                           Keys{{"use_sliding_window", "true"},
                                {"max_window_layers", "0"},
                                {"layer_types", R"(["full_attention","full_attention"])"}}}) {
    CHECK(parse(with(least("qwen2"), keys)).window == 0);
  }
}

TEST_CASE("windows of attention are those that transformers takes", "[io]") {
  const LanguageModelConfig unsaid = parse(least("mistral"));
  CHECK(unsaid.window == 4096);
  CHECK(unsaid.full_layers == 0);
  CHECK(parse(with(least("mistral"), {{"sliding_window", "131071"}})).window == 131071);
  for (const char* layers : {R"(["full_attention","sliding_attention"])", ""}) {
    const LanguageModelConfig qwen = parse(with(least("qwen2"), {{"use_sliding_window", "true"},
                                                                 {"sliding_window", "100"},
                                                                 {"max_window_layers", "1"},
                                                                 {"layer_types", layers}}));
    CHECK(qwen.window == 100);
    CHECK(qwen.full_layers == 1);
    // Models of related families do not read these keys, and use the window in all layers.
    const LanguageModelConfig moe = parse(with(least("qwen3_moe"), {{"use_sliding_window", "true"},
                                                                    {"sliding_window", "100"},
                                                                    {"max_window_layers", "1"},
                                                                    {"layer_types", layers}}));
    CHECK(moe.window == 100);
    CHECK(moe.full_layers == 0);
  }
  LanguageModelConfig odd = small("qwen3_moe");
  odd.window = 5, odd.full_layers = 1;
  CHECK(contains(message_of<ConfigError>([&] { llama_config_json(odd, DType::kF32); }),
                 "the first 1 layers have no window"));
}

TEST_CASE("an export of a Llama that transformers wrote is that very file again", "[io]") {
  for (const char* name : kFolders) {
    CAPTURE(name);
    const LanguageModelConfig config = load_llama_config(folder_of(name));
    const HfWeights weights = weights_of(folder_of(name), config);
    const TempDir dir;
    HfExport writer(dir.path(), llama_tensors(config), llama_layout(),
                    llama_config_json(config, DType::kF32), {});
    for (const HfTensor& tensor : writer.tensors()) {
      std::vector<float> values = read_all(weights, tensor);
      writer.write(tensor.name, make_view(values.data(), Shape(tensor.shape)));
    }
    writer.commit();
    CHECK(test::read_file(dir.file("model.safetensors")) ==
          test::read_file(folder_of(name) + "/model.safetensors"));
    check_same(load_llama_config(dir.path()), config);
  }
}

TEST_CASE("padding of the vocabulary is cut from embedding and head, and zero when read", "[io]") {
  const LanguageModelConfig config = small("llama");
  const TempDir dir;
  HfExport writer(dir.path(), llama_tensors(config), llama_layout(),
                  llama_config_json(config, DType::kF32), {});
  for (const HfTensor& tensor : writer.tensors()) {
    std::vector<float> values = values_of(tensor);
    Shape shape(tensor.shape);
    if (tensor.name == "embed_tokens.weight" || tensor.name == "lm_head.weight") {
      shape[0] = config.padded_vocab;
      values.resize(static_cast<size_t>(shape.numel()), 99.f);
    }
    writer.write(tensor.name, make_view(values.data(), shape));
  }
  writer.commit();
  const SafetensorsFolder files(dir.path());
  const HfWeights weights = weights_of(dir.path(), config);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    CHECK(files.find(name)->entry->shape == std::vector<int64_t>{5, 6});
    std::vector<float> values(8 * 6, -7.f);
    weights.read(std::string(name).substr(name[0] == 'm' ? 6 : 0),
                 make_view(values.data(), {8, 6}));
    CHECK(values[29] != 0);
    CHECK(std::all_of(values.begin() + 30, values.end(), [](float v) { return v == 0; }));
  }
}

TEST_CASE("frequencies and a tied head that files have besides are no error", "[io]") {
  LanguageModelConfig config = small("llama");
  config.tied = true;
  for (const bool equal : {true, false}) {
    const TempDir dir;
    write_folder(dir.path(), config, [&](std::vector<NamedTensor>& tensors) {
      tensors.push_back(
          {{"model.layers.0.self_attn.rotary_emb.inv_freq", DType::kF32, {2}}, {1, 0.01f}});
      NamedTensor head = tensors.front();
      head.spec.name = "lm_head.weight";
      if (!equal) head.values[13] += 1;
      tensors.push_back(head);
    });
    if (equal) {
      const HfWeights weights = weights_of(dir.path(), config);
      for (const HfTensor& tensor : llama_tensors(config)) {
        CHECK(read_all(weights, tensor) == values_of(tensor));
      }
    } else {
      CHECK(contains(message_of<DataError>([&] { weights_of(dir.path(), config); }),
                     "lm_head.weight differs from model.embed_tokens.weight in row 2"));
    }
  }
}

TEST_CASE("weights of another family, or that do not fit, are listed by name", "[io]") {
  const auto message = [](std::string_view found, std::string_view want) {
    const TempDir dir;
    write_folder(dir.path(), small(found));
    return message_of<DataError>([&] { weights_of(dir.path(), small(want)); });
  };
  CHECK(contains(message("qwen2", "llama"),
                 "model.layers.0.self_attn.q_proj.bias is F32[16], unknown"));
  CHECK(contains(message("llama", "qwen2"), "self_attn.k_proj.bias is missing, expected [8]"));
  CHECK(contains(message("llama", "qwen3"), "self_attn.q_norm.weight is missing, expected [4]"));
  CHECK(contains(message("olmo2", "qwen3"),
                 "self_attn.q_norm.weight is F32[16], expected F32, BF16 or F16 [4]"));
  CHECK(contains(message("llama", "olmo2"), "input_layernorm.weight is F32[6], unknown"));
  LanguageModelConfig tied = small("llama");
  tied.tied = true;
  const TempDir dir;
  write_folder(dir.path(), tied);
  CHECK(contains(message_of<DataError>([&] { weights_of(dir.path(), small("llama")); }),
                 "lm_head.weight is missing, expected [5,6]"));
}

}  // namespace shale::models

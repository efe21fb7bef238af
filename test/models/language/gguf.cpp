// Export of models to GGUF files: names, rows and tokens. test/runtime/io tests the binary format.
#include "shale/models/language/gguf.h"

#include <cstring>
#include <map>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

using test::contains;
using test::message_of;
using test::TempDir;

// Content of a GGUF file: metadata as texts (arrays as their lengths), tensors in f32.
struct File {
  std::map<std::string, std::string> values;
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, uint32_t> types;
};

class Reader {
 public:
  explicit Reader(std::string bytes) : bytes_(std::move(bytes)) {}

  File read() {
    File file;
    take<uint32_t>(), take<uint32_t>();
    const auto tensors = take<uint64_t>(), values = take<uint64_t>();
    for (uint64_t i = 0; i < values; ++i) {
      const std::string key = text();
      file.values[key] = value(take<uint32_t>());
    }
    struct Entry {
      std::string name;
      uint64_t count = 1, offset = 0;
    };
    std::vector<Entry> entries;
    for (uint64_t i = 0; i < tensors; ++i) {
      Entry entry{.name = text()};
      const auto dims = take<uint32_t>();
      for (uint32_t d = 0; d < dims; ++d) entry.count *= take<uint64_t>();
      file.types[entry.name] = take<uint32_t>();
      entry.offset = take<uint64_t>();
      entries.push_back(entry);
    }
    const size_t data = (at_ + 31) / 32 * 32;
    for (const Entry& entry : entries) {
      if (file.types[entry.name] != 0) continue;
      std::vector<float>& to = file.tensors[entry.name];
      to.resize(entry.count);
      REQUIRE(data + entry.offset + entry.count * 4 <= bytes_.size());
      std::memcpy(to.data(), bytes_.data() + data + entry.offset, entry.count * 4);
    }
    return file;
  }

 private:
  template <typename T>
  T take() {
    T value;
    REQUIRE(at_ + sizeof(T) <= bytes_.size());
    std::memcpy(&value, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return value;
  }
  std::string text() {
    const auto size = take<uint64_t>();
    const std::string found = bytes_.substr(at_, size);
    at_ += size;
    return found;
  }
  std::string value(uint32_t type) {
    if (type == 4) return std::to_string(take<uint32_t>());
    if (type == 6) return cat(take<float>());
    if (type == 7) return take<uint8_t>() != 0 ? "true" : "false";
    if (type == 8) return text();
    REQUIRE(type == 9);
    const auto element = take<uint32_t>();
    const auto count = take<uint64_t>();
    std::string last;
    for (uint64_t i = 0; i < count; ++i) {
      last = element == 8 ? text() : std::to_string(take<int32_t>());
    }
    return cat(count, " to ", last);
  }

  std::string bytes_;
  size_t at_ = 0;
};

LanguageModelConfig tiny(const std::string& family) {
  LanguageModelConfig config{.family = family,
                             .layers = 2,
                             .width = 16,
                             .heads = 2,
                             .vocab = 256,
                             .padded_vocab = 256,
                             .context = 8};
  if (family == "gpt2") return config;
  config.kv_heads = 1;
  config.hidden = 24;
  return config;
}

// Writes a model whose parameters have element i equal to i.
File written(const TempDir& dir, const LanguageModelConfig& config) {
  const ModelFamily& family = model_family(config.family);
  const auto model = make_language_model(config);
  const std::string path = dir.file(cat(config.family, ".gguf"));
  const auto writer =
      make_gguf_writer(path, family.gguf(config), gguf_byte_tokenizer(), GgufType::kF32);
  for (const std::string& name : family.stored_parameters(config)) {
    const Shape& shape = model->find_parameter(name)->shape;
    std::vector<float> values(size_t(shape.numel()));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    writer->write(name, make_view(values.data(), shape));
  }
  CHECK_FALSE(std::filesystem::exists(path));
  writer->commit();
  return Reader(test::read_file(path)).read();
}

}  // namespace

TEST_CASE("GPT-2 in a GGUF file has llama.cpp's names, keys and rows", "[io]") {
  const TempDir dir;
  File file = written(dir, tiny("gpt2"));
  CHECK(file.values["general.architecture"] == "gpt2");
  CHECK(file.values["gpt2.feed_forward_length"] == "64");
  CHECK(file.values["gpt2.attention.head_count"] == "2");
  CHECK(file.values["tokenizer.ggml.model"] == "gpt2");
  CHECK(file.values["tokenizer.ggml.tokens"] == "256 to ÿ");
  CHECK(file.values["tokenizer.ggml.merges"] == "0 to ");
  CHECK(file.values["tokenizer.ggml.eos_token_id"] == "0");
  CHECK(file.values["tokenizer.ggml.add_bos_token"] == "false");
  CHECK(file.tensors.size() == 2 + 2 * 12 + 2);
  for (const char* name :
       {"token_embd.weight", "position_embd.weight", "blk.0.attn_norm.bias",
        "blk.1.attn_qkv.weight", "blk.1.attn_output.bias", "blk.0.ffn_norm.weight",
        "blk.0.ffn_up.weight", "blk.1.ffn_down.bias", "output_norm.weight"}) {
    CAPTURE(name);
    CHECK(file.tensors.contains(name));
  }
  // Weights are [out, in] in Shale and in GGUF.
  CHECK(file.tensors["blk.0.attn_qkv.weight"][16 * 3 + 5] == 16 * 3 + 5);
  LanguageModelConfig erf = tiny("gpt2");
  erf.gelu = Gelu::kErf;
  CHECK(contains(message_of<ConfigError>([&] { model_family("gpt2").gguf(erf); }), "tanh form"));
}

TEST_CASE("Llama in a GGUF file turns neighbours, and its relatives halves", "[io]") {
  const TempDir dir;
  File llama = written(dir, tiny("llama"));
  CHECK(llama.values["llama.attention.head_count_kv"] == "1");
  CHECK(llama.values["llama.rope.freq_base"] == "10000");
  // With a head size of 8, row i of the head becomes row 2 i, and row i + 4 becomes row 2 i + 1.
  const auto row = [](const std::vector<float>& q, int64_t i) { return q[size_t(i) * 16] / 16; };
  const std::vector<float>& q = llama.tensors["blk.1.attn_q.weight"];
  CHECK(row(q, 0) == 0);
  CHECK(row(q, 1) == 4);
  CHECK(row(q, 2) == 1);
  CHECK(row(q, 7) == 7);
  CHECK(row(q, 8) == 8);  // second head
  CHECK(row(q, 9) == 12);
  CHECK(row(llama.tensors["blk.0.attn_k.weight"], 1) == 4);
  CHECK(row(llama.tensors["blk.0.attn_v.weight"], 1) == 1);
  // The output layer is tied to the embedding.
  CHECK_FALSE(llama.tensors.contains("output.weight"));
  CHECK_FALSE(llama.tensors.contains("rope_freqs.weight"));

  LanguageModelConfig config = tiny("qwen3");
  config.tied = false;
  File qwen = written(dir, config);
  CHECK(qwen.values["general.architecture"] == "qwen3");
  CHECK(row(qwen.tensors["blk.0.attn_q.weight"], 1) == 1);
  CHECK(qwen.tensors.contains("blk.0.attn_k_norm.weight"));
  CHECK(qwen.tensors.contains("output.weight"));
}

TEST_CASE("Llama 3's scaling is written as divisors of the frequencies", "[io]") {
  const TempDir dir;
  LanguageModelConfig config = tiny("llama");
  config.rope = {.theta = 5e5,
                 .scaling = RopeScaling::kLlama3,
                 .factor = 8,
                 .original_context = 8192,
                 .low_freq_factor = 1,
                 .high_freq_factor = 4};
  File file = written(dir, config);
  const std::vector<float>& divisors = file.tensors["rope_freqs.weight"];
  REQUIRE(divisors.size() == 4);
  // The wavelengths are 6.3, 167, 4443 and 118,144 tokens. The first two frequencies are kept, the
  // third is blended (s = 0.2814), the fourth is divided by 8.
  CHECK(divisors[0] == 1);
  CHECK(divisors[1] == 1);
  CHECK(divisors[2] == Approx(1 / ((1 - 0.28129) / 8 + 0.28129)).epsilon(1e-4));
  CHECK(divisors[3] == 8);
}

TEST_CASE("models that llama.cpp would compute otherwise are refused", "[io]") {
  LanguageModelConfig config = tiny("mistral");
  config.window = 4;
  CHECK(contains(message_of<ConfigError>([&] { model_family("mistral").gguf(config); }),
                 "a sliding window of 4"));
  config = tiny("olmo2");
  CHECK(contains(message_of<ConfigError>([&] { model_family("olmo2").gguf(config); }), "olmo2"));
  config = tiny("qwen2");
  config.rope = {.scaling = RopeScaling::kYarn, .factor = 2, .original_context = 8};
  CHECK(contains(message_of<ConfigError>([&] { model_family("qwen2").gguf(config); }), "yarn"));
  config = tiny("qwen3");
  config.attention_bias = true;
  CHECK(contains(message_of<ConfigError>([&] { model_family("qwen3").gguf(config); }),
                 "Qwen3 with attention_bias"));
}

TEST_CASE("a tokenizer goes into a GGUF file, or is refused", "[io]") {
  using Texts = std::vector<std::string>;
  const auto trained = [](const std::string& special) {
    const TokenizerSpec spec =
        train_bpe({{"ab", 3}}, {.vocab_size = 258, .min_frequency = 2, .special = {special}});
    return parse_tokenizer(to_tokenizer_json(spec), "tokenizer.json");
  };
  const auto tokenizer = trained("<|endoftext|>");
  const GgufValues values = gguf_tokenizer(*tokenizer, 260);
  std::map<std::string, GgufValue> found(values.begin(), values.end());
  const auto texts = std::get<Texts>(found["tokenizer.ggml.tokens"]);
  const auto types = std::get<std::vector<int32_t>>(found["tokenizer.ggml.token_type"]);
  REQUIRE(texts.size() == 260);
  CHECK(texts[0] == "<|endoftext|>");
  CHECK(types[0] == 3);
  CHECK(texts[1] == "!");
  CHECK(types[1] == 1);
  CHECK(Texts(texts.end() - 3, texts.end()) == Texts{"ab", "[PAD258]", "[PAD259]"});
  CHECK(std::vector<int32_t>(types.end() - 3, types.end()) == std::vector<int32_t>{1, 5, 5});
  CHECK(std::get<Texts>(found["tokenizer.ggml.merges"]) == Texts{"a b"});
  CHECK(std::get<uint32_t>(found["tokenizer.ggml.eos_token_id"]) == 0);

  CHECK(contains(message_of<DataError>([&] { gguf_tokenizer(*tokenizer, 257); }),
                 "tokenizer.json: 258 tokens, expected at most 257"));
  CHECK(contains(message_of<DataError>([&] { gguf_tokenizer(*trained("<end>"), 258); }),
                 "no end-of-text token"));
  // A SentencePiece tokenizer has scores in place of merges, and byte tokens by name.
  const auto pieces = parse_tokenizer(
      test::unpacked_fixture("tokenizer/sentencepiece/small.model.gz"), "small.model");
  const GgufValues llama = gguf_tokenizer(*pieces, 800);
  found = std::map<std::string, GgufValue>(llama.begin(), llama.end());
  CHECK(std::get<std::string>(found["tokenizer.ggml.model"]) == "llama");
  CHECK(found.count("tokenizer.ggml.merges") == 0);
  CHECK(std::get<bool>(found["tokenizer.ggml.add_space_prefix"]));
  CHECK(std::get<uint32_t>(found["tokenizer.ggml.bos_token_id"]) == 1);
  CHECK(std::get<uint32_t>(found["tokenizer.ggml.eos_token_id"]) == 2);
  const auto kinds = std::get<std::vector<int32_t>>(found["tokenizer.ggml.token_type"]);
  CHECK(std::vector<int32_t>(kinds.begin(), kinds.begin() + 4) == std::vector<int32_t>{2, 3, 3, 6});
  const auto scores = std::get<std::vector<float>>(found["tokenizer.ggml.scores"]);
  CHECK(scores[1] == 0);
  const auto first_merge = pieces->tokenizer.spec().merges.front();
  CHECK(scores[size_t(first_merge.result)] == -1);

  const std::string of_characters =
      R"({"model":{"type":"BPE","vocab":{"a":0,"</s>":1},"merges":[]}})";
  CHECK(contains(
      message_of<DataError>([&] { gguf_tokenizer(*parse_tokenizer(of_characters, "t"), 2); }),
      "expected byte-level BPE"));
}

namespace {

// A byte-level tokenizer.json with these pre-tokenizers and model members.
std::shared_ptr<const StoredTokenizer> splitting(const std::string& pre_tokenizers,
                                                 const std::string& members = "",
                                                 const std::string& normalizer = "null",
                                                 const std::string& template_of = "null") {
  std::string vocab = R"("<|endoftext|>":0,"<s>":1,"Xbc":2)";
  for (size_t byte = 0; byte < 256; ++byte) {
    vocab += cat(",", json_quote(byte_alphabet()[byte]), ":", byte + 3);
  }
  const std::string bytes = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":false})";
  return parse_tokenizer(
      cat(R"({"added_tokens":[{"id":0,"content":"<|endoftext|>","special":true}],"normalizer":)",
          normalizer, R"(,"pre_tokenizer":{"type":"Sequence","pretokenizers":[)", pre_tokenizers,
          pre_tokenizers.find("ByteLevel") == std::string::npos ? bytes : "",
          R"(]},"post_processor":)", template_of, R"(,"model":{"type":"BPE",)", members,
          R"("vocab":{)", vocab, R"(},"merges":[]}})"),
      "t.json");
}

std::string split_by(tokenizer_internal::SplitPattern pattern) {
  return cat(R"({"type":"Split","pattern":{"Regex":)",
             json_quote(tokenizer_internal::regex_of(pattern)),
             R"(},"behavior":"Isolated","invert":false},)");
}

std::map<std::string, GgufValue> values_of(const StoredTokenizer& tokenizer,
                                           const HfExtras& extras = {}) {
  const GgufValues values = gguf_tokenizer(tokenizer, 300, extras);
  return {values.begin(), values.end()};
}

constexpr const char* kBytesAndGpt2 = R"({"type":"ByteLevel","add_prefix_space":false})";
constexpr const char* kDigits = R"({"type":"Digits","individual_digits":true},)";

}  // namespace

TEST_CASE("GGUF's name for how text is split is that of the tokenizer, or there is none", "[io]") {
  using tokenizer_internal::SplitPattern;
  const auto name = [](const StoredTokenizer& tokenizer) {
    return std::get<std::string>(values_of(tokenizer)["tokenizer.ggml.pre"]);
  };
  CHECK(name(*splitting(kBytesAndGpt2)) == "gpt-2");
  CHECK(name(*splitting(split_by(SplitPattern::kGpt2))) == "gpt-2");
  CHECK(name(*splitting(split_by(SplitPattern::kQwen))) == "qwen2");
  CHECK(name(*splitting(split_by(SplitPattern::kO200k))) == "gpt-4o");
  CHECK(name(*splitting(cat(kDigits, kBytesAndGpt2))) == "smollm");
  CHECK(name(*splitting(split_by(SplitPattern::kQwen), "", R"({"type":"NFC"})")) == "qwen2");
  // llama-bpe looks up whole words before merging, which matters here: no merge makes "Xbc".
  const char* const whole = R"("ignore_merges":true,)";
  CHECK(name(*splitting(split_by(SplitPattern::kCl100k), whole)) == "llama-bpe");
  CHECK(name(*splitting(split_by(SplitPattern::kCl100k))) == "dbrx");

  const auto refused = [](const std::shared_ptr<const StoredTokenizer>& tokenizer) {
    return message_of<DataError>([&] { gguf_tokenizer(*tokenizer, 300); });
  };
  CHECK(contains(
      refused(splitting(split_by(SplitPattern::kQwen), whole)),
      "t.json: splits text by qwen, with ignore_merges, which llama.cpp does not support"));
  CHECK(contains(refused(splitting(cat(kDigits, split_by(SplitPattern::kQwen)))), "digits + qwen"));
  CHECK(contains(refused(splitting(R"({"type":"ByteLevel","add_prefix_space":true})")),
                 "prefix space + gpt2"));
  CHECK(contains(refused(splitting("")), "splits text by nothing"));
  CHECK(contains(refused(splitting(kBytesAndGpt2, "", R"({"type":"Prepend","prepend":"a"})")),
                 "its normalizer changes text"));
  for (const char* flag : {"lstrip", "rstrip", "single_word"}) {
    std::string json = splitting(kBytesAndGpt2)->json;
    json.insert(json.find(R"("special":true)"), cat("\"", flag, "\":true,"));
    CHECK(contains(refused(parse_tokenizer(json, "t.json")),
                   cat("the added token '<|endoftext|>' has ", flag)));
  }
}

TEST_CASE("tokens with a meaning in a GGUF file are those of the model's folder", "[io]") {
  const auto template_of = [](const std::string& before) {
    return cat(R"({"type":"TemplateProcessing","single":[)", before,
               R"({"Sequence":{"id":"A","type_id":0}}],"special_tokens":{"<s>":{"id":"<s>",)",
               R"("ids":[1],"tokens":["<s>"]}}})");
  };
  const std::string begin = R"({"SpecialToken":{"id":"<s>","type_id":0}},)";
  const auto id = [](const std::map<std::string, GgufValue>& values, const char* name) {
    const auto it = values.find(cat("tokenizer.ggml.", name));
    return it == values.end() ? -1 : int64_t{std::get<uint32_t>(it->second)};
  };
  const auto flag = [](const std::map<std::string, GgufValue>& values, const char* name) {
    return std::get<bool>(values.at(cat("tokenizer.ggml.", name)));
  };
  const auto with_begin = splitting(kBytesAndGpt2, "", "null", template_of(begin));
  auto values = values_of(*with_begin);
  CHECK(id(values, "bos_token_id") == 1);
  CHECK(id(values, "eos_token_id") == 0);
  CHECK(flag(values, "add_bos_token"));
  CHECK_FALSE(flag(values, "add_eos_token"));

  const auto plain = splitting(kBytesAndGpt2);
  values = values_of(*plain);
  // The token that ends documents also begins the first one.
  CHECK(id(values, "bos_token_id") == 0);
  CHECK_FALSE(flag(values, "add_bos_token"));
  CHECK(id(values, "eot_token_id") == -1);

  // Settings from several files of the folder.
  const HfExtras extras = {
      {"generation_config.json", R"({"eos_token_id":[2,7,0],"pad_token_id":9})"},
      {"hf_extras.json", R"({"bos_token_id":1,"eos_token_id":5})"},
      {"tokenizer_config.json",
       R"({"eos_token":{"content":"Xbc"},"chat_template":[{"name":"default","template":"A"},
           {"name":"tool_use","template":"B"}]})"}};
  values = values_of(*plain, extras);
  CHECK(id(values, "bos_token_id") == 1);
  CHECK(id(values, "eos_token_id") == 2);
  CHECK(id(values, "eot_token_id") == 7);
  CHECK(id(values, "eom_token_id") == 0);
  CHECK(id(values, "padding_token_id") == 9);
  CHECK(std::get<std::string>(values.at("tokenizer.chat_template")) == "A");
  CHECK(std::get<std::string>(values.at("tokenizer.chat_template.tool_use")) == "B");

  // -1 means none; an id without a token cannot be written.
  values = values_of(*plain, {{"hf_extras.json", R"({"eos_token_id":2,"pad_token_id":-1})"}});
  CHECK(id(values, "eos_token_id") == 2);
  CHECK(id(values, "padding_token_id") == -1);
  CHECK(contains(message_of<DataError>([&] {
                   values_of(*plain, {{"hf_extras.json", R"({"eos_token_id":[2,4096]})"}});
                 }),
                 "expected a token with the id 4096, the eot_token_id"));

  const auto two = splitting(kBytesAndGpt2, "", "null", template_of(begin + begin));
  CHECK(contains(message_of<DataError>([&] { gguf_tokenizer(*two, 300); }),
                 "puts 2 tokens before a text"));
}

}  // namespace shale::models

#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/json.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using Ids = std::vector<int32_t>;

// A tokenizer like that of Llama 2 (SentencePiece): characters, and bytes for other characters.
Json llama2_like() {
  Json vocab = {{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}};
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  for (size_t b = 0; b < 256; ++b) {
    vocab[std::string("<0x") + kDigits[b / 16] + kDigits[b % 16] + ">"] = 3 + b;
  }
  int id = 259;
  for (const char* token : {"\u2581", "a", "b", "ab", "\u2581ab"}) vocab[token] = id++;
  const Json space = {{"String", "\u2581"}}, blank = {{"String", " "}};
  return {{"added_tokens",
           {{{"id", 1}, {"content", "<s>"}, {"special", true}},
            {{"id", 2}, {"content", "</s>"}, {"special", true}}}},
          {"normalizer",
           {{"type", "Sequence"},
            {"normalizers",
             {{{"type", "Prepend"}, {"prepend", "\u2581"}},
              {{"type", "Replace"}, {"pattern", blank}, {"content", "\u2581"}}}}}},
          {"pre_tokenizer", nullptr},
          {"post_processor",
           {{"type", "TemplateProcessing"},
            {"single",
             {{{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
              {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
            {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}},
          {"decoder",
           {{"type", "Sequence"},
            {"decoders",
             {{{"type", "Replace"}, {"pattern", space}, {"content", " "}},
              {{"type", "ByteFallback"}},
              {{"type", "Fuse"}},
              {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}}}}}},
          {"model",
           {{"type", "BPE"},
            {"unk_token", "<unk>"},
            {"fuse_unk", true},
            {"byte_fallback", true},
            {"vocab", vocab},
            {"merges", {"a b", "\u2581 ab"}}}}};
}

Tokenizer parse(const Json& root) {
  return Tokenizer(parse_tokenizer_json(root.dump(), "t.json"));
}

std::string refusal(const Json& root) {
  return test::message_of<DataError>([&] { parse(root); });
}

}  // namespace

TEST_CASE("the end of a document is the declared token, else a special one", "[tokenizer]") {
  const test::TempDir dir;
  Json root = llama2_like();
  root["added_tokens"].push_back({{"id", 264}, {"content", "<|stop|>"}, {"special", true}});
  const std::string path = dir.write("tokenizer.json", root.dump());
  const auto end = [&] { return read_tokenizer(path)->end_of_document; };
  CHECK(end() == 2);
  // The test adds files in order of increasing precedence. Configurations may contain a default id
  // that was not intended.
  dir.write("generation_config.json", R"({"eos_token_id": [264, 2]})");
  CHECK(end() == 2);
  Json nameless = root;
  for (size_t i = 0; i < nameless["added_tokens"].size(); ++i) {
    nameless["added_tokens"][i]["special"] = false;
  }
  dir.write("tokenizer.json", nameless.dump());
  CHECK(end() == 264);
  dir.write("config.json", R"({"eos_token_id": 1})");
  CHECK(end() == 1);
  dir.write("special_tokens_map.json", R"({"eos_token": {"content": "</s>"}})");
  CHECK(end() == 2);
  dir.write("tokenizer_config.json", R"({"eos_token": null})");
  CHECK(end() == 2);
  for (const char* declared : {R"("<|stop|>")", R"({"content": "<|stop|>", "special": true})"}) {
    dir.write("tokenizer_config.json", cat(R"({"eos_token": )", declared, "}"));
    CHECK(end() == 264);
  }
  // A copy of the tokenizer's files has the same end token.
  const test::TempDir copy;
  const auto stored = read_tokenizer(path);
  for (const auto& [name, bytes] : tokenizer_files(*stored)) copy.write(name, bytes);
  CHECK(read_tokenizer(copy.file("tokenizer.json"))->end_of_document == 264);
  dir.write("tokenizer_config.json", R"({"eos_token": "<|none|>"})");
  CHECK(test::contains(test::message_of<DataError>([&] { end(); }),
                       "tokenizer_config.json: eos_token is \"<|none|>\", which is not a token"));
  dir.write("tokenizer_config.json", "{}");
  dir.write("special_tokens_map.json", "{}");
  dir.write("config.json", R"({"eos_token_id": 300})");
  CHECK(test::contains(test::message_of<DataError>([&] { end(); }), "config.json: eos_token_id"));

  // An ordinary token that is spelled like an end token does not end documents.
  root["added_tokens"] = Json::array();
  CHECK_FALSE(parse_tokenizer(root.dump(), "t.json")->end_of_document.has_value());
}

TEST_CASE("files that say the same in other words are the same tokenizer", "[tokenizer]") {
  Json root = llama2_like();
  const auto one = parse_tokenizer(root.dump(), "a.json");
  root["truncation"] = nullptr;
  CHECK(are_same(*one, *parse_tokenizer(root.dump(2), "b.json")));
  root["model"]["merges"] = {"a b"};
  CHECK_FALSE(are_same(*one, *parse_tokenizer(root.dump(), "a.json")));
}

TEST_CASE("tokens of characters fall back to bytes", "[tokenizer]") {
  const Tokenizer tokenizer = parse(llama2_like());
  TokenEncoder encoder(tokenizer);
  CHECK(encoder.encode("ab ab") == Ids{263, 263});
  CHECK(encoder.encode("ab\u00e9", {.add_around = true}) == Ids{1, 263, 3 + 0xc3, 3 + 0xa9});
  for (const std::string text : {"ab ab", " a  b", "\u00e9\xff", "", "\n"}) {
    CHECK(tokenizer.decode(encoder.encode(text)) == text);
    StreamDecoder stream(tokenizer);
    std::string streamed;
    for (const int32_t id : encoder.encode(text)) streamed += stream.push(id);
    CHECK(streamed + stream.finish() == text);
  }
}

TEST_CASE("merges are pairs, or texts as before", "[tokenizer]") {
  Json root = llama2_like();
  root["model"]["merges"] = Json::array({Json::array({"a", "b"}), Json::array({"\u2581", "ab"})});
  CHECK(TokenEncoder(parse(root)).encode("ab") == Ids{263});
  root["model"]["merges"] = Json::array({"a b c"});
  CHECK(refusal(root) == "t.json: 'model.merges[0]' is \"a b c\", expected a pair of strings");
}

TEST_CASE("added tokens take the longest text, whole words and white space", "[tokenizer]") {
  Json root = llama2_like();
  root["normalizer"] = nullptr;
  root["added_tokens"] = {{{"id", 300}, {"content", "[x]"}},
                          {{"id", 301}, {"content", "[x]]"}},
                          {{"id", 302}, {"content", "ba"}, {"single_word", true}},
                          {{"id", 303}, {"content", "##"}, {"lstrip", true}, {"rstrip", true}}};
  const Tokenizer tokenizer = parse(root);
  TokenEncoder encoder(tokenizer);
  CHECK(encoder.encode("a[x]]a[x]") == Ids{260, 301, 260, 300});
  CHECK(encoder.encode("bab") == Ids{261, 262});
  CHECK(encoder.encode("ba") == Ids{302});
  CHECK(encoder.encode("a \n## a") == Ids{260, 303, 260});
}

TEST_CASE("a tokenizer.json that is not understood is refused by name", "[tokenizer]") {
  // `path` consists of keys and list indices, each preceded by a slash.
  const auto with = [](std::string_view path, const Json& value) {
    Json root = llama2_like();
    Json* place = &root;
    while (!path.empty()) {
      path.remove_prefix(1);
      const std::string_view step = path.substr(0, path.find('/'));
      place = place->is_array() ? &(*place)[size_t(parse_int(step).value())] : &(*place)[step];
      path.remove_prefix(step.size());
    }
    *place = value;
    return refusal(root);
  };
  CHECK(with("/model/type", "WordPiece") ==
        "t.json: 'model.type' is \"WordPiece\", expected BPE, the only supported model");
  CHECK(with("/model/dropout", 0.1) ==
        "t.json: 'model.dropout' is 0.1, expected no dropout: tokens must not be random");
  CHECK(with("/model/vocab/a", 5'000'000) ==
        "t.json: 'model.vocab.a' is 5000000, expected an integer from 0 to 4194303");
  CHECK(with("/model/vocab/a", 261) ==
        "t.json: 'model.vocab.b' is 261, expected an id that no other token has; 'a' has it too");
  CHECK(test::contains(with("/model/merges/0", "a x"), "'x' is not one"));
  CHECK(test::contains(with("/model/vocab/<0x00>", nullptr), "'model.vocab.<0x00>' is null"));
  CHECK(with("/normalizer", {{"type", "Lowercase"}}) ==
        "t.json: 'normalizer.type' is \"Lowercase\", expected one of NFC, Prepend, Replace, "
        "Sequence");
  CHECK(test::contains(with("/pre_tokenizer", {{"type", "BertPreTokenizer"}}),
                       "expected one of Split"));
  const Json regex = {{"type", "Split"},
                      {"pattern", {{"Regex", "\\w+"}}},
                      {"behavior", "Isolated"},
                      {"invert", false}};
  CHECK(with("/pre_tokenizer", regex) ==
        "t.json: 'pre_tokenizer.pattern.Regex' is \"\\\\w+\", expected the regular expression of "
        "GPT-2, cl100k, Llama 3, Qwen or o200k");
  CHECK(with("/post_processor/special_tokens/<s>/ids/0", 999) ==
        "t.json: the template has the id 999, which no token has");
  CHECK(with("/decoder", {{"type", "WordPiece"}}).starts_with("t.json: 'decoder.type' is"));
  CHECK(with("/model", 3) == "t.json: 'model' is 3, expected an object");
}

TEST_CASE("steps that together make a text much longer are refused", "[tokenizer]") {
  const auto sequence = [](const char* list, const Json& step, int times) {
    Json steps = Json::array();
    for (int i = 0; i < times; ++i) steps.push_back(step);
    return Json{{"type", "Sequence"}, {list, steps}};
  };
  const auto with = [&](const char* part, const char* list, const Json& step, int times) {
    Json root = llama2_like();
    root["normalizer"] = nullptr;
    root[part] = sequence(list, step, times);
    return root;
  };
  const Json doubles = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  CHECK_NOTHROW(parse(with("normalizer", "normalizers", doubles, 10)));
  CHECK(refusal(with("normalizer", "normalizers", doubles, 60)) ==
        "t.json: the normalizer with the pre-tokenizer has 60 steps that make a text up to "
        "1.15292e+18 times as long, expected at most 64 steps, and a text at most 1024 times as "
        "long");
  CHECK_FALSE(refusal(with("decoder", "decoders", doubles, 11)).empty());
  const Json long_start = {{"type", "Prepend"}, {"prepend", std::string(1024, 'a')}};
  CHECK_FALSE(refusal(with("normalizer", "normalizers", long_start, 1)).empty());
  const Json spaces = {{"type", "Metaspace"}, {"replacement", "  "}};
  CHECK_FALSE(refusal(with("pre_tokenizer", "pretokenizers", spaces, 40)).empty());
  // Pre-tokenizers can be nested, so their number has a limit too.
  const Json digits = {{"type", "Digits"}};
  CHECK_NOTHROW(parse(with("pre_tokenizer", "pretokenizers", digits, 64)));
  CHECK_FALSE(refusal(with("pre_tokenizer", "pretokenizers", digits, 200'000)).empty());
}

}  // namespace shale


#include "shale/base/error.h"
#include "shale/base/protobuf.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using test::contains;
using test::message_of;

// A SentencePiece model with few pieces: characters, merged pairs, bytes.
struct SmallModel {
  int64_t model_type = 2;
  bool removes_spaces = false;
  std::string rules;
  std::vector<std::pair<std::string, int64_t>> more = {};  // further pieces and their types

  std::string bytes() const {
    ProtoMessage model;
    const auto add = [&](const std::string& text, float score, int64_t type) {
      model.message(1, ProtoMessage().text(1, text).real32(2, score).integer(3, type));
    };
    add("<unk>", 0, 2);
    add("<s>", 0, 3);
    add("</s>", 0, 3);
    for (const char* text : {"\u2581", "a", "b"}) add(text, -9, 1);
    // If scores are equal, the leftmost pair is merged.
    add("ab", -1, 1);
    add("ba", -1, 1);
    for (const auto& [text, type] : more) add(text, -2, type);
    model.message(2, ProtoMessage().integer(3, model_type).integer(35, 0));
    model.message(3, ProtoMessage().text(2, rules).integer(3, 0).integer(4, removes_spaces));
    return model.bytes();
  }
};

}  // namespace

// test/fixtures/tokenizer/make_sentencepiece.py computed the expected values.
TEST_CASE("a SentencePiece model gives SentencePiece's ids, and its tokenizer.json too",
          "[tokenizer]") {
  const auto stored = parse_tokenizer(
      test::unpacked_fixture("tokenizer/sentencepiece/small.model.gz"), "small.model");
  const auto rewritten = parse_tokenizer(stored->json, "tokenizer.json");
  const Json vectors = test::json_file(test::fixture_path("tokenizer/sentencepiece/vectors.json"));
  CHECK(vectors.size() >= 50);
  for (const Json& vector : vectors) {
    const std::string& text = vector["text"].text();
    CAPTURE(text);
    for (const auto* one : {&stored->tokenizer, &rewritten->tokenizer}) {
      const std::vector<int32_t> ids = TokenEncoder(*one).encode(text);
      CHECK(ids == vector["ids"].get<std::vector<int32_t>>());
      // U+2581, the visible space, is decoded as a plain space.
      if (!contains(text, "\u2581")) CHECK(one->decode(ids) == text);
    }
  }
  CHECK(stored->tokenizer.vocab_size() == 800);
  CHECK(stored->end_of_document == stored->tokenizer.find("</s>"));
  TokenEncoder encoder(stored->tokenizer);
  CHECK(encoder.encode("", {.add_around = true}) == std::vector<int32_t>{1});
  const std::string all = "</s>";
  CHECK(encoder.encode(all, {.special_tokens = true}) == std::vector<int32_t>{2});
}

TEST_CASE("pieces of equal score merge from the left", "[tokenizer]") {
  const auto stored = parse_tokenizer(SmallModel().bytes(), "small.model");
  TokenEncoder encoder(stored->tokenizer);
  CHECK(encoder.encode("aba") == std::vector<int32_t>{6, 4});
  CHECK(encoder.encode("bab") == std::vector<int32_t>{7, 5});
  // Adjacent unknown characters become one unknown token.
  CHECK(encoder.encode("axyb") == std::vector<int32_t>{4, 0, 5});
}

TEST_CASE("models of SentencePiece that are not BPE as it stands are refused", "[tokenizer]") {
  const auto message = [](const SmallModel& model) {
    return message_of<DataError>([&] { parse_tokenizer(model.bytes(), "small.model"); });
  };
  CHECK(contains(message({.model_type = 1}), "small.model: a SentencePiece model of another type"));
  CHECK(contains(message({.removes_spaces = true}), "removes extra spaces"));
  CHECK(contains(message({.rules = "x"}), "normalization rules"));
  CHECK(contains(message({.more = {{"ab", 1}}}),
                 "piece 8 ('ab'): expected a piece that occurs only once"));
  CHECK(contains(message({.more = {{"c", 5}}}), "piece 8 ('c'): expected a type of normal"));
  CHECK(contains(message({.more = {{"\xff", 1}}}), "expected UTF-8"));
  CHECK(contains(message({.more = {{std::string(5000, 'a'), 1}}}), "at most 4096 bytes"));
  const std::string bytes = SmallModel().bytes();
  for (size_t size = 1; size < bytes.size(); size += 7) {
    // A truncated model either can be parsed or gives an error that names the file.
    try {
      parse_tokenizer(bytes.substr(0, size), "cut.model");
    } catch (const DataError& error) {
      CHECK(contains(error.what(), "cut.model: "));
    }
  }
}

TEST_CASE("a small model whose tokenizer.json would have gigabytes is refused", "[tokenizer]") {
  SmallModel model;
  for (size_t length = 2; length <= 1500; ++length) {
    model.more.emplace_back(std::string(length, 'a'), 1);
  }
  CHECK(contains(
      message_of<DataError>([&] { parse_tokenizer(model.bytes(), "small.model"); }),
      "small.model: its tokenizer.json would have more than 1.0 GiB, expected at most 256"));
}

TEST_CASE("a file of tiktoken is known by its tokens, or refused", "[tokenizer]") {
  CHECK(contains(message_of<DataError>([] { parse_tokenizer("YQ== 0\nYg== 1\n", "t"); }),
                 "t: neither a tokenizer.json nor a SentencePiece model; as a tiktoken file it "
                 "has 2 lines, expected 50256 (r50k_base), 100256 (cl100k_base)"));
  CHECK_FALSE(message_of<DataError>([] { parse_tokenizer("", "t"); }).empty());
}

TEST_CASE("the tokenizer of bytes gives every byte its value, in its file too", "[tokenizer]") {
  const auto bytes = byte_tokenizer();
  const auto again = parse_tokenizer(bytes->json, "tokenizer.json");
  std::string text;
  for (int byte = 255; byte >= 0; --byte) text += static_cast<char>(byte);
  text += " caf\xc3\xa9  ";
  std::vector<int32_t> want;
  for (const char c : text) want.push_back(static_cast<unsigned char>(c));
  for (const StoredTokenizer* stored : {bytes.get(), again.get()}) {
    INFO(stored->path);
    CHECK(stored->tokenizer.vocab_size() == 256);
    CHECK(TokenEncoder(stored->tokenizer).encode(text) == want);
    CHECK(stored->tokenizer.decode(want) == text);
    CHECK(!stored->end_of_document.has_value());
  }
}

}  // namespace shale

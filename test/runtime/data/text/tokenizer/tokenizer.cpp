#include "shale/runtime/data/text/tokenizer/tokenizer.h"

#include <random>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/data/text/tokenizer/unicode.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/tokenizers.h"

namespace shale {
namespace {

using Ids = std::vector<int32_t>;

// FNV-1a hash over 32-bit little-endian ids.
uint64_t hash_of(const Ids& ids) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const int32_t id : ids) {
    for (int shift = 0; shift < 32; shift += 8) {
      hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 255)) * 0x100000001b3;
    }
  }
  return hash;
}

// Returns all characters up to `last`, each followed by "a ".
std::string every_character(uint32_t last) {
  std::string text;
  for (uint32_t code = 1; code <= last; ++code) {
    if (code >= 0xd800 && code < 0xe000) continue;
    tokenizer_internal::append_utf8(code, text);
    text += "a ";
  }
  return text;
}

std::string random_bytes(std::mt19937& random, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>(random());
  return text;
}

}  // namespace

// The expected ids were computed by tiktoken 0.14. Hugging Face tokenizers 0.23 gives the same ids.
TEST_CASE("published tokenizers give the published ids", "[tokenizer]") {
  const Json vectors = test::json_file(test::fixture_path("tokenizer/vectors.json"));
  const Tokenizer gpt2 = test::gpt2_tokenizer(), cl100k = test::cl100k_tokenizer();
  for (const auto& [name, tokenizer] : {std::pair{"gpt2", &gpt2}, std::pair{"cl100k", &cl100k}}) {
    TokenEncoder encoder(*tokenizer);
    for (const Json& vector : vectors) {
      if (!vector.contains(name)) continue;
      const std::string& text = vector["text"].text();
      INFO(name << ": " << text);
      const Ids ids = encoder.encode(text);
      CHECK(ids == vector[name].get<Ids>());
      CHECK(tokenizer->decode(ids) == text);
    }
  }
}

TEST_CASE("every character of the Basic Multilingual Plane gives tiktoken's ids", "[tokenizer]") {
  const Tokenizer gpt2 = test::gpt2_tokenizer(), cl100k = test::cl100k_tokenizer();
  const std::string text = every_character(0xffff);
  const Ids of_gpt2 = TokenEncoder(gpt2).encode(text);
  const Ids of_cl100k = TokenEncoder(cl100k).encode(text);
  CHECK(of_gpt2.size() == 270503);
  CHECK(of_cl100k.size() == 254370);
  CHECK(hash_of(of_gpt2) == 0xa4ce1cd95ad9b108);
  CHECK(hash_of(of_cl100k) == 0x748bc73ee8890e10);
}

TEST_CASE("any bytes come back, at once and token by token", "[tokenizer]") {
  const Tokenizer gpt2 = test::gpt2_tokenizer();
  TokenEncoder encoder(gpt2);
  std::mt19937 random(1);
  for (size_t bytes = 0; bytes < 300; ++bytes) {
    const std::string text = random_bytes(random, bytes);
    const Ids ids = encoder.encode(text);
    CHECK(gpt2.decode(ids) == text);
    StreamDecoder stream(gpt2);
    std::string streamed;
    for (const int32_t id : ids) streamed += stream.push(id);
    CHECK(streamed + stream.finish() == text);
  }
}

TEST_CASE("a stream gives whole characters", "[tokenizer]") {
  const Tokenizer gpt2 = test::gpt2_tokenizer();
  StreamDecoder stream(gpt2);
  std::vector<std::string> parts;
  for (const int32_t id : TokenEncoder(gpt2).encode("\u65e5\U0001f44d")) {
    parts.push_back(stream.push(id));
  }
  // Each character has two tokens; the first token ends inside the character.
  CHECK(parts == std::vector<std::string>{"", "\u65e5", "", "\U0001f44d"});
  CHECK(stream.push(*gpt2.find("\xf0")) == "");
  CHECK(stream.finish() == "\xf0");
}

TEST_CASE("special tokens are cut from text only when asked for", "[tokenizer]") {
  const Tokenizer gpt2 = test::gpt2_tokenizer();
  TokenEncoder encoder(gpt2);
  CHECK(encoder.encode("a<|endoftext|>a", {.special_tokens = true}) == Ids{64, 50256, 64});
  CHECK(encoder.encode("<|endoftext|>") == Ids{27, 91, 437, 1659, 5239, 91, 29});
  CHECK(gpt2.decode(Ids{64, 50256, 64}) == "a<|endoftext|>a");
  CHECK(gpt2.decode(Ids{64, 50256, 64}, false) == "aa");
  CHECK(gpt2.find("<|endoftext|>") == 50256);
  CHECK(gpt2.vocab_size() == 50257);
  const auto decode_unknown = [&] { gpt2.decode(Ids{50257}); };
  CHECK(test::message_of<DataError>(decode_unknown) ==
        "no token has the id 50257, expected one below 50257");
}

TEST_CASE("a long text without a space merges as its pieces would", "[tokenizer]") {
  const Tokenizer cl100k = test::cl100k_tokenizer();
  TokenEncoder encoder(cl100k);
  const Ids ids = encoder.encode(std::string(1 << 20, 'x'));
  // The token 45202 is "xxxxxxxx".
  CHECK(ids == Ids((1 << 20) / 8, 45202));
}

}  // namespace shale

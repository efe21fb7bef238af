#include "shale/test/support/tokenizers.h"

#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"

namespace shale::test {
namespace {

using Pair = std::pair<size_t, size_t>;

std::vector<Pair> read_merges(const std::string& name) {
  const std::string bytes = unpacked_fixture("tokenizer/" + name);
  const auto number = [&bytes](size_t at) {
    const auto byte = [&](size_t i) -> size_t { return static_cast<uint8_t>(bytes[at + i]); };
    return byte(0) | byte(1) << 8 | byte(2) << 16;
  };
  std::vector<Pair> merges;
  for (size_t at = 0; at < bytes.size(); at += 6) merges.emplace_back(number(at), number(at + 3));
  return merges;
}

// Returns the byte tokens in GPT-2's order: bytes that its alphabet maps to themselves come first.
std::vector<std::string> byte_tokens() {
  std::vector<std::string> itself, other;
  for (size_t b = 0; b < 256; ++b) {
    const bool moved = static_cast<unsigned char>(byte_alphabet()[b][0]) >= 0xc4;
    (moved ? other : itself).emplace_back(1, static_cast<char>(b));
  }
  itself.insert(itself.end(), other.begin(), other.end());
  return itself;
}

std::vector<std::string> tokens_of(const std::vector<Pair>& merges) {
  std::vector<std::string> tokens = byte_tokens();
  for (const auto& [left, right] : merges) tokens.push_back(tokens[left] + tokens[right]);
  return tokens;
}

std::string in_alphabet(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) text += byte_alphabet()[static_cast<unsigned char>(c)];
  return text;
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) {
      bits = bits << 8 | (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    }
    for (size_t i = 0; i < 4; ++i) {
      text += at + i <= bytes.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

std::string gpt2_json() {
  const std::vector<Pair> merges = read_merges("gpt2.merges.gz");
  const std::vector<std::string> tokens = tokens_of(merges);
  Json::Object vocab;
  Json pairs = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) vocab.emplace_back(in_alphabet(tokens[id]), id);
  vocab.emplace_back("<|endoftext|>", 50256);
  for (const auto& [left, right] : merges) {
    pairs.push_back({in_alphabet(tokens[left]), in_alphabet(tokens[right])});
  }
  const Json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}};
  const Json root = {
      {"version", "1.0"},
      {"added_tokens",
       {{{"id", 50256}, {"content", "<|endoftext|>"}, {"special", true}, {"normalized", false}}}},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", byte_level},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", pairs}}}};
  return root.dump();
}

Tokenizer gpt2_tokenizer() {
  return Tokenizer(parse_tokenizer_json(gpt2_json(), "gpt2"));
}

std::string cl100k_file() {
  const std::vector<std::string> tokens = tokens_of(read_merges("cl100k.merges.gz"));
  std::string file;
  for (size_t id = 0; id < tokens.size(); ++id) {
    file += base64(tokens[id]) + " " + std::to_string(id) + "\n";
  }
  return file;
}

Tokenizer cl100k_tokenizer(tokenizer_internal::SplitPattern pattern) {
  return Tokenizer(parse_tiktoken(cl100k_file(), pattern,
                                  {{.id = 100257, .text = "<|endoftext|>"},
                                   {.id = 100258, .text = "<|fim_prefix|>"},
                                   {.id = 100259, .text = "<|fim_middle|>"},
                                   {.id = 100260, .text = "<|fim_suffix|>"},
                                   {.id = 100276, .text = "<|endofprompt|>"}},
                                  "cl100k"));
}

std::shared_ptr<const StoredTokenizer> bytes_with(const std::vector<std::string>& marks) {
  std::string vocab, added;
  int id = 0;
  for (const std::string& mark : marks) {
    added += cat(id == 0 ? "" : ",", R"({"id":)", id, R"(,"content":")", mark,
                 R"(","special":true,"normalized":false})");
    vocab += cat(id == 0 ? "" : ",", "\"", mark, "\":", id);
    ++id;
  }
  for (const std::string& letter : byte_alphabet()) {
    const std::string quoted = letter == "\"" || letter == "\\" ? "\\" + letter : letter;
    vocab += cat(",\"", quoted, "\":", id++);
  }
  return parse_tokenizer(
      cat(R"({"added_tokens":[)", added,
          R"(],"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},)",
          R"("model":{"type":"BPE","vocab":{)", vocab, R"(},"merges":[]}})"),
      "tokenizer.json");
}

std::shared_ptr<const StoredTokenizer> chatml() {
  return bytes_with({"<|endoftext|>", "<|im_start|>", "<|im_end|>"});
}

}  // namespace shale::test

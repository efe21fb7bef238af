// If the input starts like a tokenizer.json or a SentencePiece model, it is read as one, and the
// tokenizer encodes a fixed text. Otherwise the first byte chooses the split pattern of a
// byte-level tokenizer with a few merges, which encodes the rest of the input.
#include <array>
#include <vector>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

using tokenizer_internal::SplitPattern;

Tokenizer tokenizer_of_bytes(SplitPattern pattern) {
  TokenizerSpec spec{.source = "bytes", .whole_pieces = true};
  for (int b = 0; b < 256; ++b) spec.tokens.emplace_back(1, static_cast<char>(b));
  spec.tokens.insert(spec.tokens.end(), {"aa", "aaa", " a"});
  spec.merges = {{'a', 'a', 256, 0}, {256, 'a', 257, 1}, {' ', 'a', 258, 2}};
  spec.splits.emplace_back(PatternSplit{pattern});
  return Tokenizer(std::move(spec));
}

void check_round_trip(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = TokenEncoder(tokenizer).encode(text);
  fuzz::require(tokenizer.decode(ids) == text, "decoding gives the text again");
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) streamed += stream.push(id);
  fuzz::require(streamed + stream.finish() == text, "so does decoding token by token");
  const size_t cut = tokenizer.find_cut(text, text.size() / 2);
  TokenEncoder encoder(tokenizer);
  std::vector<int32_t> parts = encoder.encode(text.substr(0, cut));
  encoder.append(text.substr(cut), {}, parts);
  fuzz::require(parts == ids, "text that is cut has the tokens of the whole");
}

void try_file(std::string_view bytes) {
  fuzz::accepts<DataError>([bytes] {
    const auto stored = parse_tokenizer(std::string(bytes), "file");
    const Tokenizer& tokenizer = stored->tokenizer;
    const EncodeOptions options{.special_tokens = true, .add_around = true};
    const auto ids = TokenEncoder(tokenizer).encode("It's  a\ttext of 2024,\n\xff aaa", options);
    for (const int32_t id : ids) {
      fuzz::require(id >= 0 && id < tokenizer.vocab_size(), "tokens are below the vocabulary");
    }
    tokenizer.decode(ids);
  });
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  static const std::array<Tokenizer, 4> tokenizers = {
      tokenizer_of_bytes(SplitPattern::kGpt2), tokenizer_of_bytes(SplitPattern::kCl100k),
      tokenizer_of_bytes(SplitPattern::kQwen), tokenizer_of_bytes(SplitPattern::kO200k)};
  if (size == 0) return 0;
  const std::string_view rest = fuzz::text_of(data + 1, size - 1);
  if (data[0] == '{' || data[0] == '\n') {
    try_file(fuzz::text_of(data, size));
  } else {
    check_round_trip(tokenizers[data[0] % 4], rest);
  }
  return 0;
}

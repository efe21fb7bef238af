#include "shale/runtime/data/text/text_tokens.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using test::contains;
using test::message_of;
using test::TempDir;
using Ids = std::vector<int32_t>;

std::shared_ptr<const StoredTokenizer> tokenizer_with(const std::string& special,
                                                      const Ids& before = {}) {
  PieceCounts counts;
  for (int i = 0; i < 3; ++i) {
    count_pieces("Line of a text.\n", tokenizer_internal::SplitPattern::kCl100k, counts);
  }
  const TokenizerSpec spec = train_bpe(counts, {.vocab_size = 280, .special = {special}});
  Json json = Json::parse(to_tokenizer_json(spec), {}, "small");
  if (!before.empty()) {
    json["post_processor"] = {
        {"type", "TemplateProcessing"},
        {"single", {{{"SpecialToken", {{"id", "x"}}}}, {{"Sequence", {{"id", "A"}}}}}},
        {"special_tokens", {{"x", {{"ids", before}}}}}};
  }
  return parse_tokenizer(json.dump(), "small");
}

DatasetSplits open_with(const std::string& path,
                        const std::shared_ptr<const StoredTokenizer>& tokenizer, int threads = 2,
                        double val_fraction = 0) {
  return open_dataset({.path = path,
                       .format = DataFormat::kText,
                       .val_fraction = val_fraction,
                       .tokenizer = tokenizer,
                       .threads = threads});
}

Ids tokens_of(const TokenStream& stream) {
  Ids tokens(static_cast<size_t>(stream.size()));
  stream.read(0, tokens);
  return tokens;
}

}  // namespace

TEST_CASE("a document begins with what its tokenizer puts before a text", "[data]") {
  const TempDir dir;
  dir.write("a.txt", "Line one\n");
  dir.write("b.txt", "text");
  const auto begun = tokenizer_with("<|endoftext|>", {5});
  const Ids one = TokenEncoder(begun->tokenizer).encode("Line one\n", {.add_around = true});
  const Ids two = TokenEncoder(begun->tokenizer).encode("text", {.add_around = true});
  REQUIRE((one.front() == 5 && two.front() == 5));
  Ids want = one;
  want.push_back(0);
  want.insert(want.end(), two.begin(), two.end());
  const DatasetSplits splits = open_with(dir.path(), begun);
  CHECK(tokens_of(*splits.train) == want);
  CHECK(splits.fingerprint != open_with(dir.path(), tokenizer_with("<|endoftext|>")).fingerprint);
  CHECK(encode_prompt(*begun, "text") == two);
  // If the beginning-of-text token also ends documents, it is not added twice.
  CHECK(tokens_of(*open_with(dir.path(), tokenizer_with("<|endoftext|>", {0})).train) ==
        tokens_of(*open_with(dir.path(), tokenizer_with("<|endoftext|>")).train));
  CHECK(contains(message_of<DataError>([&] {
                   open_with(dir.path(), tokenizer_with("<|endoftext|>", {5, 6}));
                 }),
                 "puts 2 tokens before a text"));
}

TEST_CASE("text with a tokenizer is its tokens, joined by the end of a document", "[data]") {
  const TempDir dir;
  dir.write("a.txt", "Line one\n");
  dir.write("b.txt", "Über <|endoftext|>");
  dir.write("latin1.txt", "caf\xe9");
  const auto tokenizer = tokenizer_with("<|endoftext|>");
  const DatasetSplits splits = open_with(dir.path(), tokenizer);
  TokenEncoder encoder(tokenizer->tokenizer);
  Ids want = encoder.encode("Line one\n");
  want.push_back(0);
  encoder.append("Über <|endoftext|>", {}, want);
  CHECK(tokens_of(*splits.train) == want);
  // The text that is spelled like the end token gives no token 0.
  CHECK(std::count(want.begin(), want.end(), 0) == 1);
  CHECK(splits.train->vocab_bound() == tokenizer->tokenizer.vocab_size());
  CHECK(contains(splits.summary, "skipped 1 not UTF-8"));
  CHECK(contains(splits.summary, "tokens of small"));

  const auto bytes = open_dataset({.path = dir.path(), .format = DataFormat::kText});
  CHECK(bytes.fingerprint != splits.fingerprint);
  CHECK(contains(message_of<DataError>([&] { open_with(dir.file("latin1.txt"), tokenizer); }),
                 "latin1.txt: not UTF-8 at byte 3"));
  CHECK(contains(
      message_of<DataError>([&] { open_with(dir.file("a.txt"), tokenizer_with("<stop>")); }),
      "no end-of-document token"));
}

TEST_CASE("a long text is cut among threads and has the tokens of the whole", "[data]") {
  const TempDir dir;
  std::string text;
  for (int i = 0; text.size() < 5 << 20; ++i) text += cat("Line ", i % 1013, " of a text.\n");
  const std::string path = dir.write("long.txt", text);
  const auto tokenizer = tokenizer_with("<|endoftext|>");
  const Ids want = TokenEncoder(tokenizer->tokenizer).encode(text);
  for (const int threads : {1, 4}) {
    const DatasetSplits splits = open_with(path, tokenizer, threads);
    CHECK(tokens_of(*splits.train) == want);
  }
  // The validation part starts at the start of a line.
  const DatasetSplits splits = open_with(path, tokenizer, 2, 0.1);
  const Ids train = tokens_of(*splits.train), val = tokens_of(*splits.val);
  CHECK(tokenizer->tokenizer.decode(train) + tokenizer->tokenizer.decode(val) == text);
  CHECK(tokenizer->tokenizer.decode(val).starts_with("Line "));
}

}  // namespace shale

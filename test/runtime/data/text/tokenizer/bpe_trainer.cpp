#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"

#include <map>
#include <random>

#include "shale/base/error.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {
namespace {

using test::contains;
using test::message_of;
using tokenizer_internal::SplitPattern;
using Pairs = std::vector<std::pair<int32_t, int32_t>>;

PieceCounts counts_of(const std::string& corpus) {
  PieceCounts counts;
  std::string_view rest = corpus;
  while (!rest.empty()) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    count_pieces(line, SplitPattern::kCl100k, counts);
    rest.remove_prefix(line.size() + 1);
  }
  return counts;
}

Pairs pairs_of(const TokenizerSpec& spec) {
  Pairs pairs;
  for (const MergeRule& merge : spec.merges) pairs.emplace_back(merge.left, merge.right);
  return pairs;
}

Pairs stored_pairs(const std::string& bytes) {
  const auto id = [&bytes](size_t at) {
    const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[at + i]); };
    return byte(0) | byte(1) << 8 | byte(2) << 16;
  };
  Pairs pairs;
  for (size_t at = 0; at < bytes.size(); at += 6) pairs.emplace_back(id(at), id(at + 3));
  return pairs;
}

}  // namespace

// test/fixtures/tokenizer/make_trained.py computed the expected values.
TEST_CASE("training gives the merges and ids of Hugging Face's trainer", "[tokenizer]") {
  struct Case {
    std::string name;
    int64_t vocab_size, min_frequency, tokens;
  };
  for (const Case& one : {Case{"words", 1500, 2, 993}, Case{"ties", 900, 1, 900}}) {
    CAPTURE(one.name);
    const std::string name = "tokenizer/trained/" + one.name;
    const TokenizerSpec spec =
        train_bpe(counts_of(test::unpacked_fixture(name + ".txt.gz")),
                  {.vocab_size = one.vocab_size, .min_frequency = one.min_frequency});
    CHECK(std::ssize(spec.tokens) == one.tokens);
    const Pairs pairs = pairs_of(spec),
                stored = stored_pairs(test::read_file(test::fixture_path(name + ".merges")));
    CHECK(pairs.size() == stored.size());
    CHECK(pairs == stored);
  }
}

// A reference without a heap counts all pairs again for each merge.
TEST_CASE("training merges what comes most often, of equal pairs the lowest", "[tokenizer]") {
  std::mt19937 random(5);
  for (int run = 0; run < 20; ++run) {
    PieceCounts counts;
    for (int i = 0; i < 12; ++i) {
      std::string word;
      for (size_t left = 1 + random() % 6; left > 0; --left) {
        word += static_cast<char>('a' + random() % 4);
      }
      counts[word] += static_cast<int64_t>(1 + random() % 3);
    }
    const TokenizerSpec spec = train_bpe(counts, {.vocab_size = 275, .min_frequency = 1});
    std::vector<std::pair<std::vector<int32_t>, int64_t>> words;
    for (const auto& [word, count] : counts) {
      std::vector<int32_t> ids;
      for (const char c : word) ids.push_back(c - '!' + 1);
      words.emplace_back(ids, count);
    }
    for (const MergeRule& merge : spec.merges) {
      std::map<std::pair<int32_t, int32_t>, int64_t> pairs;
      for (const auto& [word, count] : words) {
        for (size_t i = 0; i + 1 < word.size(); ++i) pairs[{word[i], word[i + 1]}] += count;
      }
      auto best = pairs.begin();
      for (auto it = pairs.begin(); it != pairs.end(); ++it) {
        if (it->second > best->second) best = it;
      }
      // If two merges form the same token, Hugging Face counts its words differently, so the
      // comparison ends.
      if (spec.tokens.size() != 257 + spec.merges.size()) break;
      REQUIRE(best != pairs.end());
      CHECK(best->first == std::pair(merge.left, merge.right));
      for (auto& [word, count] : words) {
        for (size_t i = 0; i + 1 < word.size(); ++i) {
          if (word[i] != merge.left || word[i + 1] != merge.right) continue;
          word[i] = merge.result;
          word.erase(word.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
      }
    }
  }
}

TEST_CASE("a trained tokenizer is read back from its tokenizer.json", "[tokenizer]") {
  PieceCounts counts;
  const std::string text = "Shale is a rock. Shale's rocks are 12345 years old, or so.\n\nÜber Öl";
  for (int i = 0; i < 3; ++i) count_pieces(text, SplitPattern::kO200k, counts);
  for (const SplitPattern pattern :
       {SplitPattern::kGpt2, SplitPattern::kCl100k, SplitPattern::kQwen, SplitPattern::kO200k}) {
    const TokenizerSpec spec = train_bpe(counts, {.vocab_size = 300, .pattern = pattern});
    const auto stored = parse_tokenizer(to_tokenizer_json(spec), "tokenizer.json");
    const Tokenizer direct{TokenizerSpec(spec)};
    const std::vector<int32_t> ids = TokenEncoder(direct).encode(text);
    CHECK(TokenEncoder(stored->tokenizer).encode(text) == ids);
    CHECK(stored->tokenizer.decode(ids) == text);
    CHECK(ids.size() < text.size());
    CHECK(stored->end_of_document == 0);
    CHECK(stored->tokenizer.vocab_size() == direct.vocab_size());
    CHECK(direct.vocab_size() > 280);
  }
}

TEST_CASE("training refuses vocabularies and special tokens that cannot be", "[tokenizer]") {
  const auto message = [](const BpeTrainerOptions& options) {
    return message_of<ConfigError>([&] { train_bpe({}, options); });
  };
  CHECK(contains(message({.vocab_size = 256}), "expected 257"));
  CHECK(contains(message({.vocab_size = 1 << 23}), "to 4194304"));
  CHECK(contains(message({.special = {"<a>", "<a>"}}), "<a>"));
  CHECK(contains(message({.special = {"a b"}}), "visible"));
  CHECK(contains(message({.special = {""}}), "visible"));
  CHECK(train_bpe({}, {.vocab_size = 1000}).tokens.size() == 257);
}

}  // namespace shale

#include <random>

#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/tokenizers.h"

namespace shale {
namespace {

using tokenizer_internal::SplitPattern;

// Makes random texts in which line ends are next to every kind of character that split patterns
// distinguish.
std::string random_lines(std::mt19937& random, size_t pieces) {
  const std::vector<std::string> kinds = {
      "\n", "\n", "\r\n", " ", "  ", "a",      "B",      "word",   "'s",      "1",      "234",
      ".",  "/",  "\t",   "é", "日", "\u3000", "\u00a0", "\u2028", "e\u0301", "\u0301", "\u1100"};
  std::string text;
  for (; pieces > 0; --pieces) text += kinds[random() % kinds.size()];
  return text;
}

void check_cuts(const Tokenizer& tokenizer, int* cuts) {
  std::mt19937 random(11);
  TokenEncoder encoder(tokenizer);
  for (int run = 0; run < 400; ++run) {
    const std::string text = random_lines(random, 40);
    std::vector<int32_t> joined;
    std::string_view rest = text;
    while (!rest.empty()) {
      const size_t end = tokenizer.find_cut(rest, 1);
      *cuts += end < rest.size() ? 1 : 0;
      encoder.append(rest.substr(0, end), {}, joined);
      rest.remove_prefix(end);
    }
    CAPTURE(text);
    REQUIRE(joined == encoder.encode(text));
  }
}

}  // namespace

TEST_CASE("text that is cut has the tokens of the whole", "[tokenizer]") {
  int cuts = 0;
  check_cuts(test::gpt2_tokenizer(), &cuts);
  for (const SplitPattern pattern :
       {SplitPattern::kCl100k, SplitPattern::kQwen, SplitPattern::kO200k}) {
    check_cuts(test::cl100k_tokenizer(pattern), &cuts);
  }
  TokenizerSpec spec = test::gpt2_tokenizer().spec();
  spec.normalizer.emplace_back(NfcStep{});
  check_cuts(Tokenizer(spec), &cuts);
  CHECK(cuts > 1000);
}

TEST_CASE("text is not cut where tokens could lie across", "[tokenizer]") {
  const std::string text = "one\ntwo";
  TokenizerSpec spec = test::gpt2_tokenizer().spec();
  CHECK(Tokenizer(spec).find_cut(text, 0) == 4);
  CHECK(Tokenizer(spec).find_cut(text, 4) == 4);
  CHECK(Tokenizer(spec).find_cut(text, 5) == text.size());
  CHECK(Tokenizer(spec).find_cut("one \ntwo", 0) == 8);
  CHECK(Tokenizer(spec).find_cut("", 0) == 0);
  spec.added.push_back({.id = 60'000, .text = "e\nt", .special = false});
  CHECK(Tokenizer(spec).find_cut(text, 0) == text.size());
  spec.added.clear();
  spec.normalizer.emplace_back(PrependStep{"_"});
  CHECK(Tokenizer(spec).find_cut(text, 0) == text.size());
}

}  // namespace shale

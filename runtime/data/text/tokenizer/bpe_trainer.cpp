#include "shale/runtime/data/text/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/runtime/data/text/tokenizer/vocabulary.h"

namespace shale {
namespace {

using tokenizer_internal::kMaxTokens;
using Pair = std::pair<int32_t, int32_t>;

struct PairHash {
  size_t operator()(const Pair& pair) const {
    const uint64_t key =
        uint64_t{static_cast<uint32_t>(pair.first)} << 32 | static_cast<uint32_t>(pair.second);
    const uint64_t mixed = (key ^ key >> 29) * 0x9e3779b97f4a7c15;
    return mixed ^ mixed >> 32;
  }
};

// A pair that may be merged next. `words` contained it when it was added to the queue.
struct Candidate {
  int64_t count = 0;  // count when the pair was added; the present count may be lower
  Pair pair;
  std::vector<uint32_t> words;  // indices of words that contain the pair, in ascending order

  // Order of the heap. Returns true if `other` must be merged first.
  bool operator<(const Candidate& other) const {
    return count != other.count ? count < other.count : other.pair < pair;
  }
};

class Trainer {
 public:
  Trainer(const PieceCounts& counts, const BpeTrainerOptions& options) : options_(options) {
    add_first_tokens();
    add_words(counts);
  }

  void run(const std::function<void(int64_t tokens)>& on_merge) {
    while (size() < options_.vocab_size && !queue_.empty()) {
      Candidate top = take_top();
      const int64_t count = pair_counts_[top.pair];
      if (top.count != count) {
        top.count = count;
        put(std::move(top));
        continue;
      }
      if (count < 1 || count < options_.min_frequency) break;
      merge(top);
      if (on_merge != nullptr && merges_.size() % 256 == 0) on_merge(size());
    }
  }

  TokenizerSpec take() {
    TokenizerSpec spec{.source = "trained"};
    spec.tokens = std::move(tokens_);
    spec.merges = distinct_merges();
    for (size_t id = 0; id < options_.special.size(); ++id) {
      spec.added.push_back({.id = static_cast<int32_t>(id), .text = options_.special[id]});
    }
    spec.splits.emplace_back(PatternSplit{options_.pattern});
    return spec;
  }

 private:
  int64_t size() const { return std::ssize(tokens_); }

  // Returns the id of a token. Adds the token if it does not exist.
  int32_t add(const std::string& token) {
    const auto [it, is_new] = ids_.try_emplace(token, static_cast<int32_t>(tokens_.size()));
    if (is_new) tokens_.push_back(token);
    return it->second;
  }

  void add_first_tokens() {
    for (const std::string& token : options_.special) add(token);
    // Bytes and their characters in GPT-2's alphabet, sorted by character.
    std::vector<std::pair<std::string, char>> bytes;
    for (size_t b = 0; b < 256; ++b) bytes.emplace_back(byte_alphabet()[b], static_cast<char>(b));
    std::sort(bytes.begin(), bytes.end());
    for (const auto& [character, byte] : bytes) {
      byte_ids_[static_cast<unsigned char>(byte)] = add(std::string(1, byte));
    }
  }

  void add_words(const PieceCounts& counts) {
    std::unordered_map<Pair, std::vector<uint32_t>, PairHash> places;
    for (const auto& [piece, count] : counts) {
      const auto number = static_cast<uint32_t>(words_.size());
      std::vector<int32_t> word;
      for (const char c : piece) word.push_back(byte_ids_[static_cast<unsigned char>(c)]);
      for (size_t i = 0; i + 1 < word.size(); ++i) {
        const Pair pair(word[i], word[i + 1]);
        pair_counts_[pair] += count;
        std::vector<uint32_t>& words = places[pair];
        if (words.empty() || words.back() != number) words.push_back(number);
      }
      words_.push_back(std::move(word));
      word_counts_.push_back(count);
    }
    put_all(places);
  }

  void put_all(std::unordered_map<Pair, std::vector<uint32_t>, PairHash>& places) {
    for (auto& [pair, words] : places) {
      const int64_t count = pair_counts_[pair];
      if (count > 0) put({.count = count, .pair = pair, .words = std::move(words)});
    }
  }
  void put(Candidate candidate) {
    queue_.push_back(std::move(candidate));
    std::push_heap(queue_.begin(), queue_.end());
  }
  Candidate take_top() {
    std::pop_heap(queue_.begin(), queue_.end());
    Candidate top = std::move(queue_.back());
    queue_.pop_back();
    return top;
  }

  // Merges the pair in the candidate's words, from left to right. Another merge may have made the
  // resulting token before. Then the token keeps its id, and its pairs may be in the queue several
  // times, each time with other words. A pair's count is not reduced by its own merge.
  void merge(const Candidate& top) {
    const auto [left, right] = top.pair;
    const int32_t merged =
        add(tokens_[static_cast<size_t>(left)] + tokens_[static_cast<size_t>(right)]);
    merges_.push_back({.left = left,
                       .right = right,
                       .result = merged,
                       .rank = static_cast<uint32_t>(merges_.size())});
    std::unordered_map<Pair, std::vector<uint32_t>, PairHash> places;
    for (const uint32_t number : top.words) merge_in(number, top.pair, merged, places);
    put_all(places);
  }

  // Returns the merges without repetitions. If a pair was merged several times, only its last merge
  // counts.
  std::vector<MergeRule> distinct_merges() const {
    std::unordered_map<Pair, uint32_t, PairHash> last;
    for (const MergeRule& merge : merges_) last[{merge.left, merge.right}] = merge.rank;
    std::vector<MergeRule> distinct;
    for (MergeRule merge : merges_) {
      if (last[{merge.left, merge.right}] != merge.rank) continue;
      merge.rank = static_cast<uint32_t>(distinct.size());
      distinct.push_back(merge);
    }
    return distinct;
  }

  void merge_in(uint32_t number, const Pair& pair, int32_t merged,
                std::unordered_map<Pair, std::vector<uint32_t>, PairHash>& places) {
    std::vector<int32_t>& word = words_[number];
    const int64_t count = word_counts_[number];
    const auto changes = [&](const Pair& gone, const Pair& made) {
      pair_counts_[gone] -= count;
      pair_counts_[made] += count;
      std::vector<uint32_t>& words = places[made];
      if (words.empty() || words.back() != number) words.push_back(number);
    };
    size_t kept = 0;  // number of symbols that the word has after the merge
    for (size_t i = 0; i < word.size(); ++i) {
      const bool is_pair =
          word[i] == pair.first && i + 1 < word.size() && word[i + 1] == pair.second;
      if (!is_pair) {
        word[kept++] = word[i];
        continue;
      }
      if (kept > 0) changes({word[kept - 1], pair.first}, {word[kept - 1], merged});
      if (i + 2 < word.size()) changes({pair.second, word[i + 2]}, {merged, word[i + 2]});
      word[kept++] = merged;
      ++i;
    }
    word.resize(kept);
  }

  const BpeTrainerOptions& options_;
  std::vector<std::string> tokens_;  // text of each token, by id
  std::unordered_map<std::string, int32_t> ids_;
  int32_t byte_ids_[256] = {};
  std::vector<MergeRule> merges_;
  std::vector<std::vector<int32_t>> words_;
  std::vector<int64_t> word_counts_;
  std::unordered_map<Pair, int64_t, PairHash> pair_counts_;
  std::vector<Candidate> queue_;  // heap of candidates, the next merge first
};

void check(const BpeTrainerOptions& options) {
  const int64_t least = 256 + std::ssize(options.special);
  if (options.vocab_size < least || options.vocab_size > kMaxTokens) {
    throw ConfigError(cat("a vocabulary of ", options.vocab_size, " tokens, expected ", least,
                          " (bytes and special tokens) to ", kMaxTokens));
  }
  std::set<std::string> seen;
  for (const std::string& token : options.special) {
    const bool is_visible =
        std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (token.size() < 2 || !is_visible || !seen.insert(token).second) {
      throw ConfigError(
          cat("special token '", excerpt(token),
              "', expected at least two visible ASCII characters, and each token only once"));
    }
  }
}

}  // namespace

void count_pieces(std::string_view text, tokenizer_internal::SplitPattern pattern,
                  PieceCounts& counts) {
  std::string piece;
  for (size_t begin = 0, end; begin < text.size(); begin = end) {
    end = tokenizer_internal::piece_end(pattern, text, begin);
    piece.assign(text, begin, end - begin);
    ++counts[piece];
  }
}

TokenizerSpec train_bpe(const PieceCounts& counts, const BpeTrainerOptions& options,
                        const std::function<void(int64_t tokens)>& on_merge) {
  check(options);
  Trainer trainer(counts, options);
  trainer.run(on_merge);
  return trainer.take();
}

}  // namespace shale

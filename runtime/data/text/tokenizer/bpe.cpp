#include "shale/runtime/data/text/tokenizer/bpe.h"

#include <algorithm>
#include <array>
#include <functional>

namespace shale::tokenizer_internal {
namespace {

constexpr size_t kFew = 64;
constexpr uint32_t kEnd = 0xffff'ffff;  // index that ends a list of nodes

}  // namespace

void BpeMerger::append(std::span<const int32_t> symbols, std::vector<int32_t>& out) {
  if (symbols.size() <= kFew) {
    append_few(symbols, out);
  } else {
    append_many(symbols, out);
  }
}

void BpeMerger::append_few(std::span<const int32_t> symbols, std::vector<int32_t>& out) const {
  std::array<int32_t, kFew> tokens;
  std::array<Merge, kFew> merges;  // merges[i] merges tokens i and i + 1; the last token has none
  size_t count = symbols.size();
  std::copy(symbols.begin(), symbols.end(), tokens.begin());
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merges_.find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t lowest = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[lowest].rank) lowest = i;
    }
    if (merges[lowest].rank == Merge::kNoRank) break;
    tokens[lowest] = merges[lowest].result;
    --count;
    for (size_t i = lowest + 1; i < count; ++i) {
      tokens[i] = tokens[i + 1];
      merges[i] = merges[i + 1];
    }
    if (lowest + 1 < count) merges[lowest] = merges_.find(tokens[lowest], tokens[lowest + 1]);
    if (lowest > 0) merges[lowest - 1] = merges_.find(tokens[lowest - 1], tokens[lowest]);
  }
  out.insert(out.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(count));
}

void BpeMerger::push(uint32_t at, int32_t left, int32_t right) {
  const Merge merge = merges_.find(left, right);
  nodes_[at].merge = merge;
  if (merge.rank == Merge::kNoRank) return;
  heap_.push_back(uint64_t{merge.rank} << 32 | at);
  std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

void BpeMerger::append_many(std::span<const int32_t> symbols, std::vector<int32_t>& out) {
  const auto count = static_cast<uint32_t>(symbols.size());
  nodes_.resize(count);
  heap_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const Merge merge = i + 1 < count ? merges_.find(symbols[i], symbols[i + 1]) : Merge{};
    nodes_[i] = {symbols[i], i == 0 ? kEnd : i - 1, i + 1 < count ? i + 1 : kEnd, merge};
    if (merge.rank != Merge::kNoRank) heap_.push_back(uint64_t{merge.rank} << 32 | i);
  }
  std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const auto at = static_cast<uint32_t>(heap_.back());
    const auto rank = static_cast<uint32_t>(heap_.back() >> 32);
    heap_.pop_back();
    Node& node = nodes_[at];
    // Skips an outdated entry: a neighbour was merged after the entry was added, so the ranks
    // differ.
    if (node.merge.rank != rank) continue;
    Node& eaten = nodes_[node.next];
    node.symbol = node.merge.result;
    node.merge = {};
    eaten.merge = {};
    node.next = eaten.next;
    if (node.next != kEnd) {
      nodes_[node.next].previous = at;
      push(at, node.symbol, nodes_[node.next].symbol);
    }
    if (node.previous != kEnd) push(node.previous, nodes_[node.previous].symbol, node.symbol);
  }
  for (uint32_t i = 0; i != kEnd && count > 0; i = nodes_[i].next) out.push_back(nodes_[i].symbol);
}

}  // namespace shale::tokenizer_internal

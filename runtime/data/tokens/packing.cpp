#include "shale/runtime/data/tokens/packing.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/loss.h"

namespace shale {
namespace {

std::vector<ExamplePart> parts_of(const TokenExamples& examples, int64_t row_tokens,
                                  Overlong overlong) {
  std::vector<ExamplePart> parts;
  for (int64_t i = 0; i < examples.size(); ++i) {
    const int64_t length = examples.length(i);
    const int64_t end = overlong == Overlong::kTruncate ? std::min(length, row_tokens) : length;
    // Skips a truncated example that has no targets left: they may all have been in the part that
    // was cut off.
    if (end < length && examples.targets(i, 0, end) == 0) continue;
    for (int64_t begin = 0; begin < end; begin += row_tokens) {
      parts.push_back({i, begin, std::min(row_tokens, end - begin)});
    }
  }
  return parts;
}

// Returns the index of the row for each part. Parts must be sorted by length, longest first.
std::vector<int64_t> best_fit(const std::vector<ExamplePart>& parts, int64_t row_tokens) {
  std::vector<int64_t> rows;
  std::vector<std::vector<int64_t>> with_room(static_cast<size_t>(row_tokens) + 1);
  std::set<int64_t> rooms;  // numbers of free tokens that occur among the rows
  int64_t count = 0;
  for (const ExamplePart& part : parts) {
    const auto fit = rooms.lower_bound(part.count);
    int64_t room = row_tokens, row = count;
    if (fit == rooms.end()) {
      ++count;
    } else {
      room = *fit;
      std::vector<int64_t>& those = with_room[static_cast<size_t>(room)];
      row = those.back();
      those.pop_back();
      if (those.empty()) rooms.erase(fit);
    }
    rows.push_back(row);
    room -= part.count;
    if (room == 0) continue;
    with_room[static_cast<size_t>(room)].push_back(row);
    rooms.insert(room);
  }
  return rows;
}

class PackedSamples final : public TrainSamples {
 public:
  PackedSamples(std::shared_ptr<const PackedRows> rows, uint64_t seed)
      : rows_(std::move(rows)), seed_(seed) {}
  int64_t samples_per_epoch() const override { return rows_->size(); }
  void read(int64_t position, const TokenRow& row) const override {
    rows_->read(index_of(position), row);
  }
  int64_t targets(int64_t position) const override { return rows_->targets(index_of(position)); }

 private:
  int64_t index_of(int64_t position) const {
    const auto epoch = static_cast<uint64_t>(position / rows_->size());
    return Permutation(rows_->size(), seed_, epoch)(position % rows_->size());
  }

  std::shared_ptr<const PackedRows> rows_;
  uint64_t seed_;
};

class StreamDocuments final : public TokenExamples {
 public:
  StreamDocuments(std::shared_ptr<const TokenStream> tokens, DocumentToken between)
      : tokens_(std::move(tokens)) {
    constexpr int64_t kBlock = 1 << 20;
    std::vector<int32_t> block;
    for (int64_t begin = 0; begin < tokens_->size(); begin += kBlock) {
      block.resize(static_cast<size_t>(std::min(kBlock, tokens_->size() - begin)));
      tokens_->read(begin, block);
      for (size_t i = 0; i < block.size(); ++i) {
        if (block[i] != between.token) continue;
        const int64_t at = begin + static_cast<int64_t>(i);
        end_at(between.leads ? at : at + 1);
      }
    }
    end_at(tokens_->size());
  }
  int64_t size() const override { return std::ssize(ends_); }
  int64_t length(int64_t example) const override {
    return ends_[static_cast<size_t>(example)] - begin_of(example) - 1;
  }
  void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
            std::span<int32_t> targets) const override {
    const int64_t at = begin_of(example) + begin;
    tokens_->read(at, inputs);
    tokens_->read(at + 1, targets);
  }
  int64_t targets(int64_t, int64_t, int64_t count) const override { return count; }

 private:
  int64_t begin_of(int64_t example) const {
    return example == 0 ? 0 : ends_[static_cast<size_t>(example) - 1];
  }
  void end_at(int64_t end) {
    if (end > (ends_.empty() ? 0 : ends_.back())) ends_.push_back(end);
  }

  std::shared_ptr<const TokenStream> tokens_;
  std::vector<int64_t> ends_;  // position after the last token of each document
};

}  // namespace

std::span<const ExamplePart> Packing::row(int64_t index) const {
  const auto at = static_cast<size_t>(index);
  const auto begin = static_cast<size_t>(at == 0 ? 0 : row_ends.at(at - 1));
  return std::span(parts).subspan(begin, static_cast<size_t>(row_ends.at(at)) - begin);
}

Packing pack(const TokenExamples& examples, int64_t row_tokens, PackingRule rule,
             Overlong overlong) {
  if (row_tokens < 1) throw ConfigError(cat("seq-len is ", row_tokens, ", expected at least 1"));
  std::vector<ExamplePart> parts = parts_of(examples, row_tokens, overlong);
  std::vector<int64_t> rows(parts.size());
  if (rule == PackingRule::kNone) {
    std::iota(rows.begin(), rows.end(), int64_t{0});
  } else {
    std::stable_sort(parts.begin(), parts.end(),
                     [](const ExamplePart& a, const ExamplePart& b) { return a.count > b.count; });
    rows = best_fit(parts, row_tokens);
  }
  Packing packing;
  if (!rows.empty()) {
    packing.row_ends.resize(static_cast<size_t>(*std::max_element(rows.begin(), rows.end())) + 1);
  }
  for (const int64_t row : rows) ++packing.row_ends[static_cast<size_t>(row)];
  std::partial_sum(packing.row_ends.begin(), packing.row_ends.end(), packing.row_ends.begin());
  // Sorts the parts by row. Within a row they keep their order.
  packing.parts.resize(parts.size());
  std::vector<int64_t> next(packing.row_ends.size());
  for (size_t row = 1; row < next.size(); ++row) next[row] = packing.row_ends[row - 1];
  for (size_t i = 0; i < parts.size(); ++i) {
    packing.parts[static_cast<size_t>(next[static_cast<size_t>(rows[i])]++)] = parts[i];
  }
  return packing;
}

PackedRows::PackedRows(std::shared_ptr<const TokenExamples> examples, Packing packing)
    : examples_(std::move(examples)) {
  for (int64_t index = 0; index < packing.rows(); ++index) {
    const std::span<const ExamplePart> parts = packing.row(index);
    int64_t targets = 0;
    for (const ExamplePart& part : parts) {
      targets += examples_->targets(part.example, part.begin, part.count);
    }
    if (targets == 0) continue;
    packing_.parts.insert(packing_.parts.end(), parts.begin(), parts.end());
    packing_.row_ends.push_back(std::ssize(packing_.parts));
    targets_.push_back(static_cast<int32_t>(targets));
  }
  if (packing_.rows() == 0) {
    throw DataError(cat(
        "none of ", examples_->size(),
        " examples has a token to train on within a row; use a larger --seq-len, or other data"));
  }
}

void PackedRows::read(int64_t index, const TokenRow& row) const {
  size_t at = 0;
  const auto mark = [&](size_t count) {
    if (row.positions.empty()) return;
    for (size_t t = 0; t < count; ++t) {
      row.positions[at + t] = static_cast<int32_t>(t);
      row.first_keys[at + t] = static_cast<int32_t>(at);
    }
  };
  for (const ExamplePart& part : packing_.row(index)) {
    const auto count = static_cast<size_t>(part.count);
    examples_->read(part.example, part.begin, row.inputs.subspan(at, count),
                    row.targets.subspan(at, count));
    mark(count);
    at += count;
  }
  mark(row.inputs.size() - at);
  std::ranges::fill(row.inputs.subspan(at), 0);
  std::ranges::fill(row.targets.subspan(at), kernels::kIgnoreTarget);
}

std::shared_ptr<const TrainSamples> packed_samples(std::shared_ptr<const PackedRows> rows,
                                                   uint64_t seed) {
  return std::make_shared<const PackedSamples>(std::move(rows), seed);
}

std::shared_ptr<const TokenExamples> stream_documents(std::shared_ptr<const TokenStream> tokens,
                                                      DocumentToken between) {
  return std::make_shared<const StreamDocuments>(std::move(tokens), between);
}

}  // namespace shale

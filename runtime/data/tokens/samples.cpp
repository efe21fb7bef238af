#include "shale/runtime/data/tokens/samples.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "shale/base/error.h"

namespace shale {
namespace {

// Reads inputs from token `begin` on, and targets, which are the same tokens shifted by one.
void read_window(const TokenStream& tokens, int64_t begin, const TokenRow& row,
                 const std::optional<DocumentToken>& between) {
  tokens.read(begin, row.inputs);
  std::copy(row.inputs.begin() + 1, row.inputs.end(), row.targets.begin());
  tokens.read(begin + std::ssize(row.inputs), row.targets.last(1));
  mark_documents(row, between);
}

class WindowSamples final : public TrainSamples {
 public:
  WindowSamples(std::shared_ptr<const TokenStream> tokens, const TrainSampler& sampler,
                std::optional<DocumentToken> between)
      : tokens_(std::move(tokens)), sampler_(sampler), between_(between) {}
  int64_t samples_per_epoch() const override { return sampler_.samples_per_epoch(); }
  void read(int64_t position, const TokenRow& row) const override {
    read_window(*tokens_, sampler_.window(position).begin, row, between_);
  }
  int64_t targets(int64_t) const override { return sampler_.seq_len(); }

 private:
  std::shared_ptr<const TokenStream> tokens_;
  TrainSampler sampler_;
  std::optional<DocumentToken> between_;
};

class WindowRows final : public EvalRows {
 public:
  WindowRows(std::shared_ptr<const TokenStream> tokens, int64_t seq_len,
             std::optional<DocumentToken> between)
      : tokens_(std::move(tokens)),
        seq_len_(seq_len),
        size_(count_windows(tokens_->size(), seq_len)),
        between_(between) {}
  int64_t size() const override { return size_; }
  void read(int64_t index, const TokenRow& row) const override {
    read_window(*tokens_, index * seq_len_, row, between_);
  }

 private:
  std::shared_ptr<const TokenStream> tokens_;
  int64_t seq_len_, size_;
  std::optional<DocumentToken> between_;
};

class MixedSamples final : public TrainSamples {
 public:
  MixedSamples(std::vector<std::shared_ptr<const TrainSamples>> sources, Mixture mixture)
      : sources_(std::move(sources)), mixture_(std::move(mixture)) {
    epoch_ = std::numeric_limits<int64_t>::max();
    for (size_t i = 0; i < sources_.size(); ++i) {
      const double samples = static_cast<double>(sources_[i]->samples_per_epoch()) /
                             mixture_.share(static_cast<int64_t>(i));
      if (samples < 0x1p62) epoch_ = std::min(epoch_, static_cast<int64_t>(samples));
    }
  }
  int64_t samples_per_epoch() const override { return epoch_; }
  void read(int64_t position, const TokenRow& row) const override {
    const Mixture::Draw draw = mixture_.draw(position);
    sources_[static_cast<size_t>(draw.source)]->read(draw.index, row);
  }
  int64_t targets(int64_t position) const override {
    const Mixture::Draw draw = mixture_.draw(position);
    return sources_[static_cast<size_t>(draw.source)]->targets(draw.index);
  }

 private:
  std::vector<std::shared_ptr<const TrainSamples>> sources_;
  Mixture mixture_;
  int64_t epoch_;
};

class MixedRows final : public EvalRows {
 public:
  MixedRows(std::vector<std::shared_ptr<const EvalRows>> sources,
            const std::vector<int64_t>& counts)
      : sources_(std::move(sources)), ends_(counts.size()) {
    std::partial_sum(counts.begin(), counts.end(), ends_.begin());
  }
  int64_t size() const override { return ends_.back(); }
  void read(int64_t index, const TokenRow& row) const override {
    const auto source =
        static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin());
    sources_.at(source)->read(index - (source == 0 ? 0 : ends_[source - 1]), row);
  }

 private:
  std::vector<std::shared_ptr<const EvalRows>> sources_;
  std::vector<int64_t> ends_;  // for each source, the index after its last row
};

}  // namespace

DocumentToken DocumentToken::of(const TokenStream& tokens, int32_t token) {
  int32_t first = -1;
  if (tokens.size() > 0) tokens.read(0, {&first, 1});
  return {.token = token, .leads = first == token};
}

void mark_documents(const TokenRow& row, const std::optional<DocumentToken>& between) {
  if (row.positions.empty()) return;
  size_t first = 0;
  for (size_t t = 0; t < row.inputs.size(); ++t) {
    if (between && t > 0 && row.inputs[between->leads ? t : t - 1] == between->token) first = t;
    row.positions[t] = static_cast<int32_t>(t - first);
    row.first_keys[t] = static_cast<int32_t>(first);
  }
}

std::shared_ptr<const TrainSamples> window_samples(std::shared_ptr<const TokenStream> tokens,
                                                   const TrainSampler& sampler,
                                                   std::optional<DocumentToken> between) {
  return std::make_shared<const WindowSamples>(std::move(tokens), sampler, between);
}

std::shared_ptr<const EvalRows> window_rows(std::shared_ptr<const TokenStream> tokens,
                                            int64_t seq_len, std::optional<DocumentToken> between) {
  return std::make_shared<const WindowRows>(std::move(tokens), seq_len, between);
}

std::shared_ptr<const TrainSamples> mixed_samples(
    std::vector<std::shared_ptr<const TrainSamples>> sources, Mixture mixture) {
  if (std::ssize(sources) != mixture.sources()) {
    throw InternalError(
        cat("mixed samples: ", sources.size(), " sources, expected ", mixture.sources()));
  }
  if (sources.size() == 1) return sources.front();
  return std::make_shared<const MixedSamples>(std::move(sources), std::move(mixture));
}

std::shared_ptr<const EvalRows> mixed_rows(std::vector<std::shared_ptr<const EvalRows>> sources,
                                           std::span<const double> shares, int64_t most) {
  std::vector<int64_t> counts;
  double left_shares = std::accumulate(shares.begin(), shares.end(), 0.0);
  for (const auto& source : sources) counts.push_back(source->size());
  const int64_t all = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  if (most > 0 && most < all) {
    // Starts with the sources that have too few rows for their share. The sources after them get
    // more rows instead.
    std::vector<size_t> order(sources.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return static_cast<double>(counts[a]) * shares[b] <
             static_cast<double>(counts[b]) * shares[a];
    });
    int64_t left = most;
    for (const size_t i : order) {
      const auto wanted =
          static_cast<int64_t>(static_cast<double>(left) * (shares[i] / left_shares) + 0.5);
      counts[i] = std::min({counts[i], wanted, left});
      left -= counts[i];
      left_shares -= shares[i];
    }
    // Because of rounding some rows may be left; the last source gets them.
    counts[order.back()] += std::min(left, sources[order.back()]->size() - counts[order.back()]);
  }
  if (sources.size() == 1 && counts.front() == all) return sources.front();
  return std::make_shared<const MixedRows>(std::move(sources), counts);
}

}  // namespace shale

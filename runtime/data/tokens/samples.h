#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "shale/runtime/data/mixture.h"
#include "shale/runtime/data/sampler.h"
#include "shale/runtime/data/tokens/token_dataset.h"

namespace shale {

// A row of a batch, to be filled: seq_len values each.
struct TokenRow {
  std::span<int32_t> inputs;
  std::span<int32_t> targets;  // kernels::kIgnoreTarget where no loss is wanted
  // Of each input: how far it is in its document, and where in the row that begins. Empty: nobody
  // asks.
  std::span<int32_t> positions = {}, first_keys = {};
};

// Training samples, an endless sequence. Each is a pure function of its position, counted over all
// ranks. Methods are safe to call from several threads.
class TrainSamples {
 public:
  virtual ~TrainSamples() = default;
  virtual int64_t samples_per_epoch() const = 0;
  // Rows have the length that the samples were made for. Throws as TokenStream::read.
  virtual void read(int64_t position, const TokenRow& row) const = 0;
  // How many targets of the sample have a loss.
  virtual int64_t targets(int64_t position) const = 0;
};

// The rows of an evaluation, in order.
class EvalRows {
 public:
  virtual ~EvalRows() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t index, const TokenRow& row) const = 0;
};

// The token between two documents of a stream.
struct DocumentToken {
  int32_t token = 0;
  bool leads = false;  // it is the first of its document, as in llm.c's shards; else the last

  // Of that stream: the token leads if the stream begins with it.
  static DocumentToken of(const TokenStream& tokens, int32_t token);
};

// Writes positions and first_keys of a row whose inputs are there, unless nobody asks: documents
// are told by the token between them, without one the row is one document.
void mark_documents(const TokenRow& row, const std::optional<DocumentToken>& between);

// Windows of a stream, whose documents follow each other: TrainSampler's, and a fixed tiling.
// `between`: where documents are to be told apart.
std::shared_ptr<const TrainSamples> window_samples(std::shared_ptr<const TokenStream> tokens,
                                                   const TrainSampler& sampler,
                                                   std::optional<DocumentToken> between = {});
// Throws DataError if there is not one window.
std::shared_ptr<const EvalRows> window_rows(std::shared_ptr<const TokenStream> tokens,
                                            int64_t seq_len,
                                            std::optional<DocumentToken> between = {});

// Samples of several sources, which have one length of rows. An epoch of all is counted by the
// source that is through first.
std::shared_ptr<const TrainSamples> mixed_samples(
    std::vector<std::shared_ptr<const TrainSamples>> sources, Mixture mixture);
// At most `most` of the rows of several sources (0: all), the first of each, as many as the shares
// say: every source has its part in a short evaluation. A source that has fewer gives all.
std::shared_ptr<const EvalRows> mixed_rows(std::vector<std::shared_ptr<const EvalRows>> sources,
                                           std::span<const double> shares, int64_t most);

}  // namespace shale

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

// Row of a batch that read() fills. All spans have seq_len values.
struct TokenRow {
  std::span<int32_t> inputs;
  std::span<int32_t> targets;  // kernels::kIgnoreTarget: no loss for this target
  // For each input: its position in its document, and the index in the row where that document
  // begins. Empty: not needed.
  std::span<int32_t> positions = {}, first_keys = {};
};

// Endless sequence of training samples. Each is a pure function of its position, counted over all
// ranks. Thread-safe.
class TrainSamples {
 public:
  virtual ~TrainSamples() = default;
  virtual int64_t samples_per_epoch() const = 0;
  // Fills a row, which must have the samples' length. Throws like TokenStream::read.
  virtual void read(int64_t position, const TokenRow& row) const = 0;
  // Returns the number of targets of a sample that have a loss.
  virtual int64_t targets(int64_t position) const = 0;
};

// Rows of an evaluation, in order.
class EvalRows {
 public:
  virtual ~EvalRows() = default;
  virtual int64_t size() const = 0;
  virtual void read(int64_t index, const TokenRow& row) const = 0;
};

// The token that separates documents in a stream.
struct DocumentToken {
  int32_t token = 0;
  bool leads = false;  // true: first token of its document, as in llm.c's shards; false: last

  // Sets `leads` to true if the stream begins with the token.
  static DocumentToken of(const TokenStream& tokens, int32_t token);
};

// Writes positions and first_keys of a row whose inputs are set, unless they are empty. `between`
// separates documents; without it the row is one document.
void mark_documents(const TokenRow& row, const std::optional<DocumentToken>& between);

// Returns training samples that are windows of a stream, chosen by `sampler`. `between`: separator
// of documents, if a row must mark them.
std::shared_ptr<const TrainSamples> window_samples(std::shared_ptr<const TokenStream> tokens,
                                                   const TrainSampler& sampler,
                                                   std::optional<DocumentToken> between = {});
// Returns evaluation rows that tile the stream from its start. Throws DataError if it is shorter
// than one window.
std::shared_ptr<const EvalRows> window_rows(std::shared_ptr<const TokenStream> tokens,
                                            int64_t seq_len,
                                            std::optional<DocumentToken> between = {});

// Returns a mixture of several sources with equal row lengths. An epoch ends when the first source
// is exhausted.
std::shared_ptr<const TrainSamples> mixed_samples(
    std::vector<std::shared_ptr<const TrainSamples>> sources, Mixture mixture);
// Returns at most `most` evaluation rows of several sources (0: all). Takes the first rows of each
// source, in proportion to the shares, so that a short evaluation includes every source. A source
// with too few rows contributes all of them.
std::shared_ptr<const EvalRows> mixed_rows(std::vector<std::shared_ptr<const EvalRows>> sources,
                                           std::span<const double> shares, int64_t most);

}  // namespace shale

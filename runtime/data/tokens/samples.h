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

// A row of a batch, to be filled by read(). All spans have seq_len values.
struct TokenRow {
  std::span<int32_t> inputs;
  std::span<int32_t> targets;  // a target kernels::kIgnoreTarget has no loss
  // positions: for each input, its position in its document. first_keys: for each input, the index
  // in the row where its document begins. Empty spans are not filled.
  std::span<int32_t> positions = {}, first_keys = {};
};

// Endless sequence of training samples of all ranks. Each sample is a pure function of its position
// in the sequence. Thread-safe.
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

// A token that separates documents in a stream.
struct DocumentToken {
  int32_t token = 0;
  // true: first token of each document, as in llm.c's shards; false: last token
  bool leads = false;

  // Makes a DocumentToken, with `leads` true if the stream begins with the token.
  static DocumentToken of(const TokenStream& tokens, int32_t token);
};

// Writes positions and first_keys of a row, unless these spans are empty. The inputs must be set.
// between: token that separates documents; nullopt: the row is one document.
void mark_documents(const TokenRow& row, const std::optional<DocumentToken>& between);

// Returns training samples that are windows of a stream; `sampler` chooses the windows. between:
// token that separates documents, if rows must mark them.
std::shared_ptr<const TrainSamples> window_samples(std::shared_ptr<const TokenStream> tokens,
                                                   const TrainSampler& sampler,
                                                   std::optional<DocumentToken> between = {});
// Returns evaluation rows that cover the stream side by side from its start. Throws DataError if it
// is shorter than one window.
std::shared_ptr<const EvalRows> window_rows(std::shared_ptr<const TokenStream> tokens,
                                            int64_t seq_len,
                                            std::optional<DocumentToken> between = {});

// Returns training samples that are a mixture of sources. All sources must have the same row
// length. An epoch ends when the first source is exhausted.
std::shared_ptr<const TrainSamples> mixed_samples(
    std::vector<std::shared_ptr<const TrainSamples>> sources, Mixture mixture);
// Returns at most `most` evaluation rows of several sources; 0: all rows. Takes the first rows of
// each source, in proportion to its share, so that a short evaluation includes every source. A
// source with too few rows contributes all of them.
std::shared_ptr<const EvalRows> mixed_rows(std::vector<std::shared_ptr<const EvalRows>> sources,
                                           std::span<const double> shares, int64_t most);

}  // namespace shale

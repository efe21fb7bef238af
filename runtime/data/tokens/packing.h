#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shale/runtime/data/tokens/samples.h"

namespace shale {

// Examples: token sequences that must not attend to each other, such as documents or conversations.
class TokenExamples {
 public:
  virtual ~TokenExamples() = default;
  virtual int64_t size() const = 0;
  // Returns the number of inputs of an example: its tokens without the last one.
  virtual int64_t length(int64_t example) const = 0;
  // Reads the inputs of an example from `begin` on, and their targets.
  virtual void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
                    std::span<int32_t> targets) const = 0;
  // Returns the number of targets with a loss among `count` targets from `begin` on.
  virtual int64_t targets(int64_t example, int64_t begin, int64_t count) const = 0;
};

// A part of an example, counted in inputs.
struct ExamplePart {
  int64_t example = 0, begin = 0, count = 0;
};

// Assignment of example parts to rows.
struct Packing {
  std::vector<ExamplePart> parts;  // all rows, one after another
  std::vector<int64_t> row_ends;   // index in `parts` where each row ends

  int64_t rows() const { return std::ssize(row_ends); }
  std::span<const ExamplePart> row(int64_t index) const;
};

// Treatment of examples that are longer than a row.
enum class Overlong {
  kSplit,     // split into several parts
  kTruncate,  // cut off at the end of the row
};
// How examples are assigned to rows.
enum class PackingRule {
  kBestFit,  // best fit, longest first: each goes to the fullest row that has room for it
  kNone,     // each row has one example
};

// Packs examples; omits those without inputs. Throws ConfigError unless row_tokens is at least 1.
// The result depends only on the lengths and on which parts have targets; takes n log n time.
Packing pack(const TokenExamples& examples, int64_t row_tokens, PackingRule rule,
             Overlong overlong);

// Rows of packed examples. Each part is a document; the unused rest of a row has no targets.
class PackedRows final : public EvalRows {
 public:
  // Omits rows without targets. Throws DataError if no row is left.
  PackedRows(std::shared_ptr<const TokenExamples> examples, Packing packing);

  int64_t size() const override { return packing_.rows(); }
  void read(int64_t index, const TokenRow& row) const override;
  int64_t targets(int64_t index) const { return targets_[static_cast<size_t>(index)]; }

 private:
  std::shared_ptr<const TokenExamples> examples_;
  Packing packing_;
  std::vector<int32_t> targets_;  // number of targets of each row
};

// Returns training samples: every row once per epoch, in a different order each time.
std::shared_ptr<const TrainSamples> packed_samples(std::shared_ptr<const PackedRows> rows,
                                                   uint64_t seed);

// Returns a stream's documents, which the token `between` separates. Reads the stream once.
std::shared_ptr<const TokenExamples> stream_documents(std::shared_ptr<const TokenStream> tokens,
                                                      DocumentToken between);

}  // namespace shale

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shale/runtime/data/tokens/samples.h"

namespace shale {

// A set of examples: token sequences that must not attend to each other, such as documents or
// conversations.
class TokenExamples {
 public:
  virtual ~TokenExamples() = default;
  virtual int64_t size() const = 0;
  // Returns the number of inputs of an example: all its tokens except the last one.
  virtual int64_t length(int64_t example) const = 0;
  // Reads inputs of an example, from input `begin` on, and their targets.
  virtual void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
                    std::span<int32_t> targets) const = 0;
  // Returns how many of `count` targets, from target `begin` on, have a loss.
  virtual int64_t targets(int64_t example, int64_t begin, int64_t count) const = 0;
};

// A part of an example. Positions and lengths count inputs.
struct ExamplePart {
  int64_t example = 0, begin = 0, count = 0;
};

// Assignment of example parts to rows.
struct Packing {
  std::vector<ExamplePart> parts;  // parts of all rows, one row after another
  std::vector<int64_t> row_ends;   // for each row, the index in `parts` where it ends

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
  // best fit: the longest example comes first, and each goes to the fullest row with enough room
  kBestFit,
  kNone,  // one example per row
};

// Packs examples into rows of row_tokens inputs. Omits examples without inputs. The result depends
// only on the lengths and on which parts have targets. Takes n log n time for n examples. Throws
// ConfigError unless row_tokens is at least 1.
Packing pack(const TokenExamples& examples, int64_t row_tokens, PackingRule rule,
             Overlong overlong);

// Rows of packed examples. Each part of an example is a document of the row. The unused rest of a
// row has no targets.
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

// Returns training samples in which every row occurs once per epoch, in another order in each
// epoch.
std::shared_ptr<const TrainSamples> packed_samples(std::shared_ptr<const PackedRows> rows,
                                                   uint64_t seed);

// Returns the documents of a stream. The token `between` separates them. Reads the stream once.
std::shared_ptr<const TokenExamples> stream_documents(std::shared_ptr<const TokenStream> tokens,
                                                      DocumentToken between);

}  // namespace shale

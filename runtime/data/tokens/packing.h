#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "shale/runtime/data/tokens/samples.h"

namespace shale {

// Sequences that stay apart: documents of a stream, conversations.
class TokenExamples {
 public:
  virtual ~TokenExamples() = default;
  virtual int64_t size() const = 0;
  virtual int64_t length(int64_t example) const = 0;  // inputs: its tokens but the last
  // The inputs from `begin` on, and the target of each.
  virtual void read(int64_t example, int64_t begin, std::span<int32_t> inputs,
                    std::span<int32_t> targets) const = 0;
  // How many of `count` targets from `begin` on have a loss.
  virtual int64_t targets(int64_t example, int64_t begin, int64_t count) const = 0;
};

// A part of an example, in inputs.
struct ExamplePart {
  int64_t example = 0, begin = 0, count = 0;
};

// Which parts of examples lie in each row.
struct Packing {
  std::vector<ExamplePart> parts;  // row after row
  std::vector<int64_t> row_ends;   // in `parts`

  int64_t rows() const { return std::ssize(row_ends); }
  std::span<const ExamplePart> row(int64_t index) const;
};

// What becomes of an example that is longer than a row.
enum class Overlong {
  kSplit,     // it is several parts
  kTruncate,  // its end is left out
};
// How examples come into rows.
enum class PackingRule {
  kBestFit,  // the longest first, each into the fullest row that has room for it
  kNone,     // one in each row
};

// Throws ConfigError for a row without room. Examples without inputs are left out. A pure function
// of the lengths; takes n log n.
Packing pack(const TokenExamples& examples, int64_t row_tokens, PackingRule rule,
             Overlong overlong);

// Rows of parts, each a document of its own, whose rest has no targets.
class PackedRows final : public EvalRows {
 public:
  // Rows without a target are left out. Throws DataError if none is left.
  PackedRows(std::shared_ptr<const TokenExamples> examples, Packing packing);

  int64_t size() const override { return packing_.rows(); }
  void read(int64_t index, const TokenRow& row) const override;
  int64_t targets(int64_t index) const { return targets_[static_cast<size_t>(index)]; }

 private:
  std::shared_ptr<const TokenExamples> examples_;
  Packing packing_;
  std::vector<int32_t> targets_;  // of each row
};

// Every row once an epoch, in an order of its own.
std::shared_ptr<const TrainSamples> packed_samples(std::shared_ptr<const PackedRows> rows,
                                                   uint64_t seed);

// The documents of a stream, which ends with one. Reads all of it, once.
std::shared_ptr<const TokenExamples> stream_documents(std::shared_ptr<const TokenStream> tokens,
                                                      DocumentToken between);

}  // namespace shale

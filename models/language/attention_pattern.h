#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "shale/runtime/io/json_object.h"
#include "shale/runtime/ops/block_mask.h"

namespace shale::models {

// Which blocks of keys the blocks of queries see that attention does not leave out, always with
// those after a query's own hidden:
//   local       its own and the `local` - 1 before it
//   longformer  those, and the first `global` of the sequence (arXiv:2004.05150, section 3.1)
//   bigbird     those, and `random` others, drawn for each head and block from the seed
//               (arXiv:2007.14062, section 2)
//   fixed       its own segment of `local` blocks, and `global` blocks of each segment before it:
//               the last of them for the first head, those before them for the next, and so on
//               (arXiv:1904.10509, section 4.3)
//   strided     its own and the `local` - 1 before it, and every `local`-th before these (the same)
//   listed      those that a file lists
// What a block sees does not depend on the sequence's length.
enum class PatternKind : uint8_t {
  kNone,  // all
  kLocal,
  kFixed,
  kStrided,
  kLongformer,
  kBigBird,
  kListed
};

struct AttentionPattern {
  PatternKind kind = PatternKind::kNone;
  int64_t block = 0;                            // tokens
  int64_t local = 0, global = 0, random = 0;    // blocks; 0: the pattern has none such
  int64_t seed = 0;                             // of the random ones
  std::vector<std::vector<int32_t>> rows = {};  // kListed: of each block of queries

  bool is_on() const { return kind != PatternKind::kNone; }
  bool operator==(const AttentionPattern&) const = default;
  // The blocks that a block of queries of a head sees, ascending.
  std::vector<int32_t> keys_of(int64_t head, int64_t query) const;
  // Of the blocks that causal attention goes over at so many tokens, those of the pattern, by the
  // first heads.
  double share(int64_t tokens, int64_t heads) const;
};

// Of --attention-pattern: one of the names above, or a JSON file: of such a name with sizes, or
// whose row i has the numbers of the blocks that block i sees, ascending, at most i:
//   {"pattern": "bigbird", "block": 128, "local": 4, "global": 1, "random": 1}
//   {"block": 128, "rows": [[0], [0, 1], [0, 2]]}
// Throws ConfigError if it is neither, DataError for a file with sizes that cannot be or that the
// pattern has not, or with such rows, which it names.
AttentionPattern attention_pattern(const std::string& name_or_file, int64_t seed);

// For the layers of a model; null: the pattern is off.
std::shared_ptr<const BlockMask> block_mask(const AttentionPattern& pattern);

// Throws ConfigError unless it covers sequences of so many tokens, and, of documents, lets every
// token see itself.
void check_covers(const AttentionPattern& pattern, int64_t tokens, bool documents);

// What checkpoints say of it, added to a model's shape (ModelFamily::shape); and the reverse, which
// throws DataError.
void add_shape(const AttentionPattern& pattern, std::map<std::string, std::string>& shape);
AttentionPattern parse_pattern(const JsonObject& shape);

// Throws ConfigError, naming the format, for a pattern: other programs would compute something
// else.
void require_no_pattern(const AttentionPattern& pattern, std::string_view format);

}  // namespace shale::models

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

// Block-sparse attention: the key blocks that each query block attends to. All patterns are causal.
//   local       the query block itself and the `local` - 1 blocks before it
//   longformer  like local, and the first `global` blocks of the sequence (arXiv:2004.05150,
//               section 3.1)
//   bigbird     like longformer, and `random` other blocks, drawn for each head and query block
//               from the seed (arXiv:2007.14062, section 2)
//   fixed       the query block's segment of `local` blocks, and `global` blocks of each earlier
//               segment: the last ones for the first head, those before them for the next head,
//               and so on (arXiv:1904.10509, section 4.3)
//   strided     like local, and every `local`-th block before those (same paper)
//   listed      the blocks that a file lists
// The key blocks of a query block do not depend on the sequence length.
enum class PatternKind : uint8_t {
  kNone,  // dense attention
  kLocal,
  kFixed,
  kStrided,
  kLongformer,
  kBigBird,
  kListed
};

struct AttentionPattern {
  PatternKind kind = PatternKind::kNone;
  int64_t block = 0;                            // number of tokens in a block
  // Numbers of local, global and random key blocks; 0: not part of the pattern.
  int64_t local = 0, global = 0, random = 0;
  int64_t seed = 0;                             // seed of the random blocks
  std::vector<std::vector<int32_t>> rows = {};  // kListed: key blocks of each query block

  bool is_on() const { return kind != PatternKind::kNone; }
  bool operator==(const AttentionPattern&) const = default;
  // Returns the key blocks of a query block of a head, ascending.
  std::vector<int32_t> keys_of(int64_t head, int64_t query) const;
  // Returns the fraction of dense causal attention's blocks that the pattern keeps, for a sequence
  // of `tokens` tokens. Averages over the first `heads` heads.
  double share(int64_t tokens, int64_t heads) const;
};

// Reads the argument of --attention-pattern: one of the names above, or a JSON file with such a
// name and sizes, or with rows. Row i lists the key blocks of query block i, ascending, from 0 to
// i:
//   {"pattern": "bigbird", "block": 128, "local": 4, "global": 1, "random": 1}
//   {"block": 128, "rows": [[0], [0, 1], [0, 2]]}
// Throws ConfigError if it is neither, DataError for a file with impossible sizes, sizes that the
// pattern does not use, or invalid rows, which it names.
AttentionPattern attention_pattern(const std::string& name_or_file, int64_t seed);

// Returns the mask for a model's layers; null if the pattern is off.
std::shared_ptr<const BlockMask> block_mask(const AttentionPattern& pattern);

// Throws ConfigError unless the pattern covers sequences of `tokens` tokens and, if there are
// documents, lets every token attend to itself.
void check_covers(const AttentionPattern& pattern, int64_t tokens, bool documents);

// add_shape() adds the pattern to the model shape of checkpoints (ModelFamily::shape());
// parse_pattern() reads it from there and throws DataError.
void add_shape(const AttentionPattern& pattern, std::map<std::string, std::string>& shape);
AttentionPattern parse_pattern(const JsonObject& shape);

// Throws ConfigError if the pattern is on, because programs that read `format` would compute dense
// attention.
void require_no_pattern(const AttentionPattern& pattern, std::string_view format);

}  // namespace shale::models

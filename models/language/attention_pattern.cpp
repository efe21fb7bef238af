#include "shale/models/language/attention_pattern.h"

#include <algorithm>
#include <filesystem>
#include <iterator>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/kernels/attention_blocks.h"

namespace shale::models {
namespace {

constexpr int64_t kDefaultLocal = 4, kDefaultGlobal = 1, kDefaultRandom = 1;
constexpr int64_t kMostTokens = 1 << 20, kMostBlocks = kMostTokens / kernels::kAttentionBlock;

struct NamedPattern {
  PatternKind kind;
  const char* name;
  bool has_global, has_random;
};
constexpr NamedPattern kPatterns[] = {{PatternKind::kLocal, "local", false, false},
                                      {PatternKind::kFixed, "fixed", true, false},
                                      {PatternKind::kStrided, "strided", false, false},
                                      {PatternKind::kLongformer, "longformer", true, false},
                                      {PatternKind::kBigBird, "bigbird", true, true}};
constexpr const char* kNames = "local, fixed, strided, longformer or bigbird";
constexpr const char* kListed = "listed";

const NamedPattern* find_pattern(std::string_view name) {
  const auto found = std::find_if(std::begin(kPatterns), std::end(kPatterns),
                                  [&](const NamedPattern& p) { return p.name == name; });
  return found == std::end(kPatterns) ? nullptr : found;
}

// Appends the block indices in [begin, end) to an ascending list of smaller indices.
void add_range(std::vector<int32_t>& blocks, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) blocks.push_back(static_cast<int32_t>(i));
}

// Draws `pattern.random` different numbers from [begin, end) by Floyd's algorithm, in ascending
// order. Returns all numbers of the range if it has fewer.
std::vector<int32_t> draw(const AttentionPattern& pattern, int64_t head, int64_t query,
                          int64_t begin, int64_t end) {
  std::vector<int32_t> drawn;
  const int64_t all = std::max<int64_t>(end - begin, 0), count = std::min(pattern.random, all);
  const uint64_t stream = hash_name("attention pattern");
  const PhiloxKey key = rng_key(static_cast<uint64_t>(pattern.seed) ^ stream, RngDomain::kInit);
  for (int64_t last = all - count; last < all; ++last) {
    const PhiloxCounter words = philox({static_cast<uint32_t>(query), static_cast<uint32_t>(head),
                                        static_cast<uint32_t>(last), static_cast<uint32_t>(stream)},
                                       key);
    const uint64_t bits = uint64_t{words[0]} << 32 | words[1];
    auto number = static_cast<int32_t>(begin + int64_t(bits % static_cast<uint64_t>(last + 1)));
    if (std::find(drawn.begin(), drawn.end(), number) != drawn.end()) {
      number = static_cast<int32_t>(begin + last);
    }
    drawn.push_back(number);
  }
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

std::vector<int32_t> fixed_keys(const AttentionPattern& p, int64_t head, int64_t query) {
  std::vector<int32_t> keys;
  const int64_t segment = query / p.local, turn = head % (p.local / p.global);
  for (int64_t i = 0; i < segment; ++i) {
    const int64_t end = (i + 1) * p.local - turn * p.global;
    add_range(keys, end - p.global, end);
  }
  add_range(keys, segment * p.local, query + 1);
  return keys;
}

// Throws ConfigError for an invalid block size.
void check_block(int64_t block, std::string_view what) {
  constexpr int64_t kUnit = kernels::kAttentionBlock;
  if (block >= kUnit && block % kUnit == 0 && block <= kMostTokens) return;
  throw ConfigError(
      cat(what, " is ", block, ", expected a multiple of ", kUnit, ", at most ", kMostTokens));
}

// Returns what is wrong with the first invalid row; empty if all rows are valid.
std::string wrong_rows(const std::vector<std::vector<int64_t>>& rows) {
  if (rows.empty()) return "there are no rows";
  if (std::ssize(rows) > kMostBlocks) {
    return cat("there are ", rows.size(), " rows, expected at most ", kMostBlocks);
  }
  for (int64_t i = 0; i < std::ssize(rows); ++i) {
    const std::vector<int64_t>& row = rows[static_cast<size_t>(i)];
    if (row.empty()) return cat("row ", i, " lists no block, expected at least one");
    int64_t last = -1;
    for (const int64_t key : row) {
      if (key < 0 || key > i) {
        return cat("row ", i, " lists block ", key, ", expected blocks 0 to ", i);
      }
      if (key <= last) return cat("row ", i, " lists block ", key, " after ", last, ", not sorted");
      last = key;
    }
  }
  return {};
}

std::vector<std::vector<int32_t>> narrow(const std::vector<std::vector<int64_t>>& rows) {
  std::vector<std::vector<int32_t>> narrow;
  for (const std::vector<int64_t>& row : rows) narrow.emplace_back(row.begin(), row.end());
  return narrow;
}

// Returns what is wrong with the first invalid size of a named pattern; empty if all are valid.
std::string wrong_sizes(const NamedPattern& named, const AttentionPattern& p) {
  const auto of = [&](const char* what, int64_t value, const std::string& want) {
    return cat(what, " is ", value, " in a pattern ", named.name, ", expected ", want);
  };
  const std::string most = cat("1 to ", kMostBlocks, " blocks");
  if (p.local < 1 || p.local > kMostBlocks) return of("local", p.local, most);
  if (!named.has_global && p.global != 0) return of("global", p.global, "0: the pattern has none");
  if (!named.has_random && p.random != 0) return of("random", p.random, "0: the pattern has none");
  if (named.has_global && (p.global < 1 || p.global > kMostBlocks)) {
    return of("global", p.global, most);
  }
  if (named.has_random && (p.random < 1 || p.random > kMostBlocks)) {
    return of("random", p.random, most);
  }
  if (named.kind == PatternKind::kFixed && p.global > p.local) {
    return of("global", p.global, cat("at most ", p.local, ", the size of local"));
  }
  return {};
}

AttentionPattern pattern_of(const NamedPattern& named, int64_t seed) {
  return {.kind = named.kind,
          .block = kernels::kAttentionBlock,
          .local = kDefaultLocal,
          .global = named.has_global ? kDefaultGlobal : 0,
          .random = named.has_random ? kDefaultRandom : 0,
          .seed = named.has_random ? seed : 0};
}

AttentionPattern pattern_of_file(const std::string& path, int64_t seed) {
  if (!std::filesystem::exists(path)) {
    throw ConfigError(
        cat("--attention-pattern is '", path, "', expected ", kNames, " or an existing file"));
  }
  const JsonObject json = JsonObject::load(path);
  AttentionPattern pattern{.kind = PatternKind::kListed};
  std::string wrong;
  if (json.has("rows")) {
    pattern.block = json.integer("block");
    const std::vector<std::vector<int64_t>> rows = json.integer_lists("rows");
    wrong = wrong_rows(rows);
    pattern.rows = narrow(rows);
  } else {
    const NamedPattern* const named = find_pattern(json.text("pattern"));
    if (named == nullptr) json.fail("pattern", kNames);
    pattern = pattern_of(*named, seed);
    pattern.block = json.integer("block", pattern.block);
    pattern.local = json.integer("local", pattern.local);
    pattern.global = json.integer("global", pattern.global);
    pattern.random = json.integer("random", pattern.random);
    wrong = wrong_sizes(*named, pattern);
  }
  try {
    check_block(pattern.block, "block");
  } catch (const ConfigError& error) {
    throw DataError(cat(path, ": ", error.what()));
  }
  if (!wrong.empty()) throw DataError(cat(path, ": ", wrong));
  return pattern;
}

}  // namespace

std::vector<int32_t> AttentionPattern::keys_of(int64_t head, int64_t query) const {
  std::vector<int32_t> keys;
  const int64_t first = std::max<int64_t>(query - local + 1, 0);  // first block of the local window
  switch (kind) {
    case PatternKind::kNone: add_range(keys, 0, query + 1); return keys;
    case PatternKind::kFixed: return fixed_keys(*this, head, query);
    case PatternKind::kListed: return rows.at(static_cast<size_t>(query));
    case PatternKind::kStrided:
      for (int64_t key = query % local; key < first; key += local) add_range(keys, key, key + 1);
      break;
    case PatternKind::kBigBird: {
      add_range(keys, 0, std::min(global, first));
      const std::vector<int32_t> drawn = draw(*this, head, query, global, first);
      keys.insert(keys.end(), drawn.begin(), drawn.end());
      break;
    }
    case PatternKind::kLongformer: add_range(keys, 0, std::min(global, first)); break;
    case PatternKind::kLocal: break;
  }
  add_range(keys, first, query + 1);
  return keys;
}

double AttentionPattern::share(int64_t tokens, int64_t heads) const {
  if (!is_on() || tokens <= 0) return 1;
  const int64_t blocks = (tokens + block - 1) / block;
  double seen = 0;
  for (int64_t head = 0; head < heads; ++head) {
    for (int64_t query = 0; query < blocks; ++query) seen += double(keys_of(head, query).size());
  }
  return seen / (double(heads) * double(blocks) * double(blocks + 1) / 2);
}

AttentionPattern attention_pattern(const std::string& name, int64_t seed) {
  const NamedPattern* const named = find_pattern(name);
  return named != nullptr ? pattern_of(*named, seed) : pattern_of_file(name, seed);
}

std::shared_ptr<const BlockMask> block_mask(const AttentionPattern& pattern) {
  if (!pattern.is_on()) return nullptr;
  const bool by_head = pattern.kind == PatternKind::kBigBird ||
                       (pattern.kind == PatternKind::kFixed && pattern.local / pattern.global > 1);
  return std::make_shared<const BlockMask>(
      BlockMask::Options{.block = pattern.block, .by_head = by_head},
      [pattern](int64_t head, int64_t query) { return pattern.keys_of(head, query); });
}

void check_covers(const AttentionPattern& pattern, int64_t tokens, bool documents) {
  if (pattern.kind != PatternKind::kListed) return;
  if (std::ssize(pattern.rows) * pattern.block < tokens) {
    throw ConfigError(cat("--attention-pattern has ", pattern.rows.size(), " rows of ",
                          pattern.block, " tokens, expected rows for ", tokens, " tokens"));
  }
  for (int64_t i = 0; documents && i < std::ssize(pattern.rows); ++i) {
    if (pattern.rows[static_cast<size_t>(i)].back() == i) continue;
    throw ConfigError(cat("--attention-pattern with --document-mask: row ", i,
                          " does not list its own block; expected every row to list its own block, "
                          "because the first tokens of a document attend only to it"));
  }
}

void add_shape(const AttentionPattern& pattern, std::map<std::string, std::string>& shape) {
  if (!pattern.is_on()) return;
  shape["attention_block"] = cat(pattern.block);
  if (pattern.kind == PatternKind::kListed) {
    shape["attention_pattern"] = cat("\"", kListed, "\"");
    std::string rows = "[";
    for (const std::vector<int32_t>& row : pattern.rows) {
      rows += rows.size() > 1 ? ",[" : "[";
      for (const int32_t key : row) rows += cat(rows.back() == '[' ? "" : ",", key);
      rows += "]";
    }
    shape["attention_rows"] = rows + "]";
    return;
  }
  for (const NamedPattern& named : kPatterns) {
    if (named.kind != pattern.kind) continue;
    shape["attention_pattern"] = cat("\"", named.name, "\"");
    shape["attention_local"] = cat(pattern.local);
    if (named.has_global) shape["attention_global"] = cat(pattern.global);
    if (named.has_random) {
      shape["attention_random"] = cat(pattern.random);
      shape["attention_seed"] = cat(pattern.seed);
    }
  }
}

AttentionPattern parse_pattern(const JsonObject& shape) {
  if (!shape.has("attention_pattern")) return {};
  const std::string name = shape.text("attention_pattern");
  AttentionPattern pattern{.block = shape.integer("attention_block")};
  try {
    check_block(pattern.block, "attention_block");
  } catch (const ConfigError& error) {
    shape.fail("attention_block", error.what());
  }
  if (name == kListed) {
    const std::vector<std::vector<int64_t>> rows = shape.integer_lists("attention_rows");
    const std::string wrong = wrong_rows(rows);
    if (!wrong.empty()) shape.fail("attention_rows", cat("valid rows: ", wrong));
    pattern.kind = PatternKind::kListed;
    pattern.rows = narrow(rows);
    return pattern;
  }
  const NamedPattern* const named = find_pattern(name);
  if (named == nullptr) shape.fail("attention_pattern", cat(kNames, ", or ", kListed));
  pattern.kind = named->kind;
  pattern.local = shape.integer("attention_local");
  pattern.global = shape.integer("attention_global", 0);
  pattern.random = shape.integer("attention_random", 0);
  pattern.seed = shape.integer("attention_seed", 0);
  const std::string wrong = wrong_sizes(*named, pattern);
  if (!wrong.empty()) shape.fail("attention_pattern", cat("valid sizes: ", wrong));
  return pattern;
}

void require_no_pattern(const AttentionPattern& pattern, std::string_view format) {
  if (!pattern.is_on()) return;
  throw ConfigError(cat("model: the attention pattern cannot be stored in ", format));
}

}  // namespace shale::models

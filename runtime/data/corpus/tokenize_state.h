#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/runtime/data/corpus/tokenize.h"

namespace shale::corpus_internal {

// What a folder of shards says of itself, in tokenize.json.
struct TokenizeState {
  std::string job;      // as JSON: the inputs and options that its bytes depend on
  int64_t shards = 0, val_shards = 0;  // that are there whole
  CorpusPosition next;  // of the batch whose tokens follow them
  int64_t skip = 0;     // of these tokens, for they are in the shards
  // Before that batch.
  int64_t documents = 0, bytes = 0, tokens = 0, val_documents = 0, val_tokens = 0;
  bool is_complete = false;
};

inline constexpr const char* kStateFile = "tokenize.json";

// TokenizeState::job. Reads the sampled pages of the inputs' content (content_scan.h).
std::string job_json(const TokenizeJob& job);

// None if the folder has none. Throws DataError for what is malformed.
std::optional<TokenizeState> read_state(const std::string& folder);
void write_state(const std::string& folder, const TokenizeState& state);

// Throws ConfigError that names what differs, unless the jobs are equal.
void require_same_job(const TokenizeState& state, const std::string& job,
                      const std::string& folder);

}  // namespace shale::corpus_internal

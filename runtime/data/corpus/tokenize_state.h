#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/runtime/data/corpus/tokenize.h"

namespace shale::corpus_internal {

// Contents of tokenize.json in a folder of shards.
struct TokenizeState {
  std::string job;                     // inputs and options on which the shards depend, as JSON
  int64_t shards = 0, val_shards = 0;  // number of complete shards
  CorpusPosition next;  // position of the batch that contains the next token to write
  int64_t skip = 0;     // number of tokens of the batch `next` that are already in shards
  // Totals of all batches before `next`.
  int64_t documents = 0, bytes = 0, tokens = 0, val_documents = 0, val_tokens = 0;
  bool is_complete = false;
};

inline constexpr const char* kStateFile = "tokenize.json";

// Returns the text of TokenizeState::job. Reads sampled pages of the inputs (content_scan.h).
std::string job_json(const TokenizeJob& job);

// Reads the state in a folder; nullopt if there is none. Throws DataError if it is malformed.
std::optional<TokenizeState> read_state(const std::string& folder);
void write_state(const std::string& folder, const TokenizeState& state);

// Throws ConfigError, with the difference, unless the jobs are equal.
void require_same_job(const TokenizeState& state, const std::string& job,
                      const std::string& folder);

}  // namespace shale::corpus_internal

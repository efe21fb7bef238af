#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "shale/runtime/data/corpus/tokenize.h"

namespace shale::corpus_internal {

// Contents of tokenize.json in a folder of shards.
struct TokenizeState {
  std::string job;      // the inputs and options that the shards depend on, as JSON
  int64_t shards = 0, val_shards = 0;  // complete ones
  CorpusPosition next;  // position of the batch whose tokens come next
  int64_t skip = 0;     // number of this batch's tokens that are already in the shards
  // Totals before that batch.
  int64_t documents = 0, bytes = 0, tokens = 0, val_documents = 0, val_tokens = 0;
  bool is_complete = false;
};

inline constexpr const char* kStateFile = "tokenize.json";

// Value of TokenizeState::job. Reads sampled pages of the inputs (content_scan.h).
std::string job_json(const TokenizeJob& job);

// nullopt if the folder has none. Throws DataError if it is malformed.
std::optional<TokenizeState> read_state(const std::string& folder);
void write_state(const std::string& folder, const TokenizeState& state);

// Throws ConfigError, with the difference, unless the jobs are equal.
void require_same_job(const TokenizeState& state, const std::string& job,
                      const std::string& folder);

}  // namespace shale::corpus_internal

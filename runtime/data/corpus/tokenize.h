#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/data/text/tokenizer/stored_tokenizer.h"

namespace shale {

// Progress of a tokenize job over all its runs.
struct TokenizeProgress {
  int64_t documents = 0;
  int64_t bytes = 0;          // bytes of text
  int64_t earlier_bytes = 0;  // bytes of text that earlier runs of the job processed
  int64_t tokens = 0;         // number of tokens, including those added around documents
  // documents and tokens for validation, also included in the totals
  int64_t val_documents = 0, val_tokens = 0;
  int64_t taken = 0;  // bytes of the inputs on the disk consumed so far; total bytes of the inputs
  int64_t total = 0;
};

// Inputs, options and output of tokenize().
struct TokenizeJob {
  std::vector<CorpusFile> inputs;  // result of divide_corpus(), which marks files for validation
  std::string field = "text";  // key of the text in a JSON line
  std::shared_ptr<const StoredTokenizer> tokenizer;
  std::optional<int32_t> begin, end;  // tokens added before and after each document
  std::string out;                    // output folder; it appears when it is complete
  int64_t shard_tokens = 100'000'000;
  // Fraction of the documents to hold out for validation; 0: none. Unused if names of inputs mark
  // validation data. The hash of a document decides (runtime/data/split.h).
  double val_fraction = 0;
  int threads = 1;
  // What to do if another process works at the same folder. waits true: waits for it. false: throws
  // an error. Waiting fails if that process is on the same host and has been stopped (SIGSTOP,
  // Ctrl-Z) for stopped_patience_s seconds.
  bool waits = false;
  double stopped_patience_s = 60;
  // Called after each batch, by one thread at a time, and while waiting. If it throws, the work
  // ends; the same job can be resumed later.
  std::function<void(const TokenizeProgress&)> on_progress = {};
};

// Writes the documents as llm.c shards: OUT/tokens_000000.bin and so on, and OUT/val_000000.bin and
// so on for validation. A token has 16 bits if the vocabulary size is at most 2^16, else 32. Also
// writes OUT/tokenizer.json and OUT/tokenize.json, which describes the inputs. Text that spells a
// special token is encoded as ordinary text. The result does not depend on the number of threads.
//
// OUT appears only when it is complete. Until then all files are in OUT.partial. A job resumes from
// the shards there if it has the same options and inputs (names, sizes, times and sampled
// contents). If OUT already exists from the same job, nothing is done. A job that reads a pipe
// starts anew, and OUT must not exist. Throws ConfigError if OUT is something else, if OUT.partial
// belongs to another job, which the message names, or if another process works at it. Throws
// UnavailableError if the process that it waits for stays stopped. Throws DataError like
// list_corpus() and for_each_document(), and if there are no tokens; DiskError.
TokenizeProgress tokenize(const TokenizeJob& job);

}  // namespace shale

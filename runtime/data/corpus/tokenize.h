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
  int64_t earlier_bytes = 0;  // part of `bytes` that earlier runs of the job processed
  int64_t tokens = 0;         // including the tokens added around documents
  int64_t val_documents = 0, val_tokens = 0;  // part of documents and tokens that is for validation
  int64_t taken = 0;  // consumed bytes of the inputs on the disk, out of `total`
  int64_t total = 0;
};

// Inputs, options and output of tokenize().
struct TokenizeJob {
  std::vector<CorpusFile> inputs;  // result of divide_corpus(): some marked for validation
  std::string field = "text";  // key of the text in a JSON line
  std::shared_ptr<const StoredTokenizer> tokenizer;
  std::optional<int32_t> begin, end;  // tokens added before and after each document
  std::string out;                    // a folder that does not exist yet
  int64_t shard_tokens = 100'000'000;
  // Fraction of the documents for validation if no input is marked by name; the hash of a document
  // decides (runtime/data/split.h). 0: none.
  double val_fraction = 0;
  int threads = 1;
  // waits: wait if another process works at the same folder; false: throw an error. Waiting fails
  // if that process, on the same host, has been stopped (SIGSTOP, Ctrl-Z) for stopped_patience_s.
  bool waits = false;
  double stopped_patience_s = 60;
  // Called after each batch, by one thread at a time, and during waiting. An exception that it
  // throws ends the work; the same job can be resumed later.
  std::function<void(const TokenizeProgress&)> on_progress = {};
};

// Writes the documents as llm.c shards: OUT/tokens_000000.bin and so on, and OUT/val_000000.bin and
// so on for validation. A token has 16 bits if the vocabulary size is at most 2^16, else 32. Also
// writes OUT/tokenizer.json and OUT/tokenize.json, which describes the inputs. Text that spells a
// special token is encoded as ordinary text. The result does not depend on the number of threads.
//
// OUT appears only when complete. Until then all files are in OUT.partial; a job with the same
// inputs (names, sizes, times and sampled contents) and options resumes from its shards. If OUT
// already exists from the same job, there is nothing to do. A job that reads a pipe starts anew,
// and OUT must not exist. Throws ConfigError if OUT is something else, if OUT.partial belongs to
// another job (which is named), or if another process works at it; UnavailableError if the process
// that it waits for stays stopped; DataError like list_corpus() and for_each_document(), and if
// there are no tokens; DiskError.
TokenizeProgress tokenize(const TokenizeJob& job);

}  // namespace shale

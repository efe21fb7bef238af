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

// How far tokenizing is, over all runs of a job.
struct TokenizeProgress {
  int64_t documents = 0;
  int64_t bytes = 0;          // of text
  int64_t earlier_bytes = 0;  // of these, in earlier runs
  int64_t tokens = 0;         // with those around documents
  int64_t val_documents = 0, val_tokens = 0;  // of these, for validation
  int64_t taken = 0;          // bytes of the inputs on the disk, of `total`
  int64_t total = 0;
};

// What becomes tokens, and what they are written to.
struct TokenizeJob {
  std::vector<CorpusFile> inputs;  // as divide_corpus() leaves them, for validation by name
  std::string field = "text";  // of a line of jsonl
  std::shared_ptr<const StoredTokenizer> tokenizer;
  std::optional<int32_t> begin, end;  // around each document
  std::string out;                    // a folder that is not there yet
  int64_t shard_tokens = 100'000'000;
  // Part of the documents that is for validation, chosen by a hash of each (runtime/data/split.h),
  // if no input is for validation. 0: none.
  double val_fraction = 0;
  int threads = 1;
  // Whether to wait where another process works at the same; else that is an error. One of this
  // host that was stopped (SIGSTOP, Ctrl-Z) for so many seconds in a row is an error too.
  bool waits = false;
  double stopped_patience_s = 60;
  // Called after each batch, by one thread at a time, and while it waits; what it throws ends the
  // work, which the same job goes on with.
  std::function<void(const TokenizeProgress&)> on_progress = {};
};

// Writes the documents as llm.c's shards, OUT/tokens_000000.bin and so on, those for validation
// OUT/val_000000.bin and so on, of 16 bits a token if the vocabulary has at most 2^16, else of 32;
// OUT/tokenizer.json, and OUT/tokenize.json, which says what they are of.
// Text that spells a special token does not become it. Bytes do not depend on the threads.
//
// OUT appears whole: until then all lies in OUT.partial, whose shards a job of the same inputs
// (names, sizes, times and sampled content) and options goes on from, wherever it was stopped. A
// job whose OUT is there is done. Throws ConfigError for an OUT that is something else, for a
// partial one of another job, which is named, and for one at which another process works;
// UnavailableError for a process that is waited for and stays stopped; DataError as list_corpus()
// and for_each_document(), and if there are no tokens; DiskError.
TokenizeProgress tokenize(const TokenizeJob& job);

}  // namespace shale

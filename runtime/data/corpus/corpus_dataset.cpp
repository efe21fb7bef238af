#include <cstdio>
#include <filesystem>
#include <span>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/runtime/data/corpus/tokenize.h"
#include "shale/runtime/data/corpus/tokenize_state.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

// "notes-0123456789abcdef": of what the tokens depend on.
std::string entry_name(const std::string& path, const TokenizeJob& job) {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(hash_name(corpus_internal::job_json(job))));
  const fs::path name = fs::path(path).lexically_normal();
  const std::string last = (name.has_filename() ? name : name.parent_path()).filename().string();
  return cat(last.substr(0, last.find('.')), "-", hash);
}

}  // namespace

DatasetSplits open_corpus(const DataSource& source, const DataOptions& options) {
  if (options.tokenizer == nullptr) {
    throw ConfigError(cat(source.path,
                          ": jsonl and compressed text become tokens by a tokenizer, "
                          "want --tokenizer"));
  }
  if (!options.tokenizer->end_of_document) {
    throw DataError(cat(options.tokenizer->path,
                        ": none of its tokens ends a document, want one "
                        "of <|endoftext|>, <|end_of_text|>, </s>, <eos>"));
  }
  if (options.cache.empty()) throw InternalError("corpus: no folder for its tokens");
  TokenizeJob job{.inputs = list_corpus(source.is_folder ? std::vector{source.path} : source.files),
                  .field = options.field,
                  .tokenizer = options.tokenizer,
                  .begin = {},
                  .end = options.tokenizer->end_of_document,
                  .threads = options.threads,
                  .waits = true};
  job.out = (fs::path(options.cache) / entry_name(source.path, job)).string();
  if (options.on_reading) {
    job.on_progress = [&](const TokenizeProgress&) { options.on_reading(source.path); };
  }
  const TokenizeProgress done = tokenize(job);
  DatasetSplits splits = open_llmc({.path = job.out, .is_folder = true, .files = {}}, options);
  splits.format = DataFormat::kCorpus;
  splits.summary = cat("corpus ", source.path, ", ", done.documents, " documents in ", job.out,
                       ": ", splits.summary);
  return splits;
}

}  // namespace shale::data_internal

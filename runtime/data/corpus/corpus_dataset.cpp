#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "shale/base/error.h"
#include "shale/base/rng.h"
#include "shale/runtime/data/corpus/tokenize.h"
#include "shale/runtime/data/corpus/tokenize_state.h"
#include "shale/runtime/data/tokens/dataset_internal.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

// Returns the name of a cache entry, such as "notes-0123456789abcdef". It contains a hash of
// everything on which the tokens depend.
std::string entry_name(const std::string& path, const TokenizeJob& job) {
  char hash[17];
  std::snprintf(hash, sizeof hash, "%016llx",
                static_cast<unsigned long long>(hash_name(corpus_internal::job_json(job))));
  const fs::path name = fs::path(path).lexically_normal();
  const std::string last = (name.has_filename() ? name : name.parent_path()).filename().string();
  return cat(last.substr(0, last.find('.')), "-", hash);
}

}  // namespace

bool is_corpus(const DataSource& source, const DataOptions& options) {
  SkippedFiles skipped;
  const std::vector<CorpusFile> files = find_corpus(
      source.is_folder ? std::vector{source.path} : source.files, options.field, skipped);
  return skipped.records > 0 ||
         std::any_of(files.begin(), files.end(), [&](const CorpusFile& file) {
           // Without a tokenizer, compressed text is treated as binary.
           return file.is_jsonl || (options.tokenizer != nullptr && is_compressed(file.path));
         });
}

DatasetSplits open_corpus(const DataSource& source, const DataOptions& options) {
  if (options.tokenizer == nullptr) {
    throw ConfigError(
        cat(source.path,
            ": jsonl and compressed text need a tokenizer; use --tokenizer FILE (shale tokenizer "
            "train makes one), or --data-format text to train on the bytes"));
  }
  if (!options.tokenizer->end_of_document) {
    throw DataError(cat(
        options.tokenizer->path,
        ": no end-of-document token found; set eos_token in a tokenizer_config.json beside it"));
  }
  if (options.cache.empty()) throw InternalError("corpus: expected a folder as DataOptions::cache");
  SkippedFiles skipped;
  std::vector<CorpusFile> inputs = list_corpus(
      source.is_folder ? std::vector{source.path} : source.files, options.field, &skipped);
  for (CorpusFile& file : inputs) {
    if (!source.is_folder) file.below = source.name_of(file.path);
  }
  divide_corpus(inputs, source.path, skipped);
  const bool by_name = std::any_of(inputs.begin(), inputs.end(),
                                   [](const CorpusFile& file) { return file.is_validation; });
  TokenizeJob job{.inputs = std::move(inputs),
                  .field = options.field,
                  .tokenizer = options.tokenizer,
                  .begin = begin_of_document(*options.tokenizer),
                  .end = options.tokenizer->end_of_document,
                  .val_fraction = options.val_fraction,
                  .threads = options.threads,
                  .waits = true};
  job.out = (fs::path(options.cache) / entry_name(source.path, job)).string();
  if (options.on_reading) {
    job.on_progress = [&](const TokenizeProgress&) { options.on_reading(source.path); };
  }
  const TokenizeProgress done = tokenize(job);
  DatasetSplits splits = open_llmc({.path = job.out, .is_folder = true, .files = {}}, options);
  splits.format = DataFormat::kCorpus;
  const auto size = [](const auto& stream) { return stream == nullptr ? 0 : stream->size(); };
  const std::string rule = splits.val == nullptr     ? "none is held out"
                           : done.val_documents == 0 ? "from the end of the corpus"
                           : by_name                 ? "chosen by file name"
                                                     : "chosen by a hash of each document";
  splits.summary = cat("corpus ", source.path, ", ", done.documents, " documents in ", job.out,
                       ": ", size(splits.train), " training and ", size(splits.val),
                       " validation tokens (", rule, ")", skipped.describe());
  return splits;
}

}  // namespace shale::data_internal

namespace shale {

namespace {

std::string find_tokenizer_beside(DataOptions options) {
  namespace fs = std::filesystem;
  const data_internal::DataSource source = data_internal::resolve(options.path);
  const fs::path path = source.is_folder ? source.path : source.files.front();
  const fs::path folder = source.is_folder ? path : path.parent_path();
  const fs::path file = folder / kTokenizerFile;
  std::error_code error;
  if (!fs::exists(file, error)) return {};
  // A tokenizer.json next to a single file may belong to something else. It is used only if `shale
  // tokenize` wrote the folder.
  if (!source.is_folder && !fs::exists(folder / corpus_internal::kStateFile, error)) return {};
  options.once = {};
  const DataFormat format = find_format(options);
  if (is_text(format) || format == DataFormat::kCorpus) return {};
  return file.string();
}

}  // namespace

std::optional<std::string> tokenizer_beside(const DataOptions& options) {
  std::string found = data_internal::once_per_host<std::string>(
      options.once, [&] { return find_tokenizer_beside(options); });
  if (found.empty()) return {};
  return found;
}

}  // namespace shale

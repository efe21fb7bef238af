#include "shale/runtime/data/corpus/tokenize_state.h"

#include <filesystem>
#include <span>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/text_file.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/crc32c.h"

namespace shale::corpus_internal {
namespace {

constexpr JsonLimits kLimits{};
// Version of the order in which documents are processed, because the bytes of a shard depend on it.
constexpr int64_t kFormat = 2;

std::string state_path(const std::string& folder) {
  return (std::filesystem::path(folder) / kStateFile).string();
}

Json id_json(const std::optional<int32_t>& id) {
  return id ? Json(*id) : Json();
}

}  // namespace

std::string job_json(const TokenizeJob& job) {
  std::string list;
  int64_t bytes = 0;
  bool has_val = false, has_pipe = false;
  for (const CorpusFile& file : job.inputs) {
    list += cat(file.pipe != nullptr ? "a pipe" : file.name, "\n", file.bytes, "\n", file.modified,
                "\n", file.is_validation, "\n");
    has_val = has_val || file.is_validation;
    has_pipe = has_pipe || file.pipe != nullptr;
    bytes += file.bytes;
  }
  // Contents are sampled, because a copied file may have the same name, size and time but another
  // text.
  const uint64_t content =
      has_pipe ? 0
               : data_internal::sampled_checksum(
                     std::ssize(job.inputs),
                     [&job](int64_t i) { return job.inputs[static_cast<size_t>(i)].path; }, {});
  const Json json = {
      {"format", kFormat},
      {"tokenizer",
       {{"tokens", job.tokenizer->tokenizer.vocab_size()}, {"crc32c", job.tokenizer->crc}}},
      {"inputs",
       {{"files", std::ssize(job.inputs)},
        {"bytes", bytes},
        {"names_sizes_times_crc32c", crc32c(std::as_bytes(std::span(list)))},
        {"content", content}}},
      {"field", job.field},
      {"begin", id_json(job.begin)},
      {"end", id_json(job.end)},
      {"shard_tokens", job.shard_tokens},
      {"val_fraction", has_val ? 0.0 : job.val_fraction},
  };
  return json.dump();
}

std::optional<TokenizeState> read_state(const std::string& folder) {
  const std::string path = state_path(folder);
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return {};
  const std::string text = read_text_file(path, kLimits.max_bytes);
  const Json json = Json::parse(text, kLimits, path);
  try {
    const auto count = [](const Json& object, const char* key) { return object[key].integer(0); };
    const Json& next = json["next"];
    return TokenizeState{.job = json["job"].dump(),
                         .shards = count(json, "shards"),
                         .val_shards = count(json, "val_shards"),
                         .next = {count(next, "file"), count(next, "offset"), count(next, "line")},
                         .skip = count(next, "skip"),
                         .documents = count(json, "documents"),
                         .bytes = count(json, "bytes"),
                         .tokens = count(json, "tokens"),
                         .val_documents = count(json, "val_documents"),
                         .val_tokens = count(json, "val_tokens"),
                         .is_complete = json["complete"].boolean()};
  } catch (const DataError&) {
    throw DataError(
        cat(path, ": not a folder written by shale tokenize; remove it to start again"));
  }
}

void write_state(const std::string& folder, const TokenizeState& state) {
  const Json json = {{"job", Json::parse(state.job, kLimits, kStateFile)},
                     {"shards", state.shards},
                     {"val_shards", state.val_shards},
                     {"next",
                      {{"file", state.next.file},
                       {"offset", state.next.offset},
                       {"line", state.next.line},
                       {"skip", state.skip}}},
                     {"documents", state.documents},
                     {"bytes", state.bytes},
                     {"tokens", state.tokens},
                     {"val_documents", state.val_documents},
                     {"val_tokens", state.val_tokens},
                     {"complete", state.is_complete}};
  write_file_atomically(state_path(folder), json.dump(1) + "\n");
}

void require_same_job(const TokenizeState& state, const std::string& job,
                      const std::string& folder) {
  if (state.job == job) return;
  const Json was = Json::parse(state.job, kLimits, kStateFile);
  const Json is = Json::parse(job, kLimits, "job");
  for (const auto& [key, value] : is.items()) {
    const bool is_there = was.contains(key);
    if (is_there && was[key] == value) continue;
    throw ConfigError(cat(folder, " belongs to another job: its ", key, " is ",
                          is_there ? was[key].dump() : "unknown", ", now ", value.dump(),
                          "; use the same value or another --out, or remove that folder"));
  }
  throw ConfigError(cat(folder, " belongs to another job; use another --out"));
}

}  // namespace shale::corpus_internal

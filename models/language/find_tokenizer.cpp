#include "shale/models/language/find_tokenizer.h"

#include <filesystem>
#include <optional>

#include "shale/comm/checkpoint/folder.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

// The file of that name in a folder; empty if it is not there.
std::string file_in(const std::string& folder, const char* name) {
  const fs::path path = fs::path(folder) / name;
  std::error_code error;
  return fs::exists(path, error) ? path.string() : "";
}

std::string path_of_tokenizer(const TrainConfig& config) {
  const auto& language = config.language;
  if (language.tokenizer == "none") return {};
  if (!language.tokenizer.empty()) return language.tokenizer;
  const std::string& resume = config.run.resume;
  if (resume != "none") {
    const auto checkpoint = newest_checkpoint(resume == "auto" ? config.run.out : resume);
    // A run that goes on has what it began with, or nothing.
    if (checkpoint) return file_in(*checkpoint, kTokenizerFile);
  }
  if (language.init.empty()) return {};
  const std::string json = file_in(language.init, kTokenizerFile);
  return json.empty() ? file_in(language.init, "tokenizer.model") : json;
}

}  // namespace

std::shared_ptr<const StoredTokenizer> find_tokenizer(const TrainConfig& config) {
  const std::string path = path_of_tokenizer(config);
  return path.empty() ? nullptr : read_tokenizer(path);
}

}  // namespace shale::models

#include "shale/runtime/data/fetch_advice.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "shale/base/error.h"

namespace shale::data_internal {
namespace {

std::string with_path(std::string_view command, std::string_view path) {
  std::string text(command);
  return text.replace(text.find("PATH"), 4, path);
}

}  // namespace

std::string fetch_advice(std::string_view path) {
  // Prefix of an address, and the command that fetches it. An empty command stands for kHub with
  // the name of the data set.
  static constexpr std::array<std::array<std::string_view, 2>, 6> kCommands = {{
      {"s3://", "aws s3 cp --recursive PATH DIR"},
      {"gs://", "gcloud storage cp -r PATH DIR"},
      {"hf://datasets/", ""},
      {"https://huggingface.co/datasets/", ""},
      {"http://", "curl -LO PATH"},
      {"https://", "curl -LO PATH"},
  }};
  static constexpr std::string_view kHub = "hf download PATH --repo-type dataset --local-dir DIR";
  for (const auto& [address, command] : kCommands) {
    if (!path.starts_with(address)) continue;
    if (!command.empty()) return cat("; fetch it first: ", with_path(command, path));
    const std::string_view name = path.substr(address.size());
    const size_t end = name.find('/', std::min(name.find('/'), name.size() - 1) + 1);
    return cat("; fetch it first: ", with_path(kHub, name.substr(0, end)));
  }
  const size_t slash = path.find('/');
  const bool is_hub_name = slash != path.npos && slash > 0 && slash + 1 < path.size() &&
                           path.find('/', slash + 1) == path.npos && !path.starts_with('.');
  std::error_code error;
  if (!is_hub_name || std::filesystem::exists(path.substr(0, slash), error)) return {};
  return cat("; if it is a data set of the Hugging Face hub, fetch it: ", with_path(kHub, path));
}

}  // namespace shale::data_internal

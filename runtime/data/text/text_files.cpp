#include "shale/runtime/data/text/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>

#include "shale/base/error.h"

namespace shale::data_internal {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) {
  return path.filename().string().starts_with('.');
}

// Appends files directly in `folder` to `files`, and its folders to `pending`.
void list_folder(const fs::path& folder, const fs::path& root, std::vector<ListedFile>& files,
                 std::vector<fs::path>& pending, SkippedFiles& skipped) {
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    if (is_hidden(path)) continue;
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      // Links to folders are not followed, because a link may lead back to a parent.
      if (!it->is_symlink(ignored)) pending.push_back(path);
      continue;
    }
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
      skipped.add_unreadable(cat(path.string(), ": ", std::strerror(errno)));
    } else if (S_ISREG(info.st_mode)) {
      files.push_back({path.lexically_relative(root).generic_string(),
                       path.string(),
                       info.st_size,
                       {info.st_dev, info.st_ino}});
    }
  }
  if (error) skipped.add_unreadable(cat(folder.string(), ": ", error.message()));
}

}  // namespace

BinaryKind binary_kind(std::string_view start) {
  constexpr const char* kLines =
      "convert it to jsonl, as with pandas' to_json(orient=\"records\", lines=True)";
  if (start.starts_with("PAR1")) return {"Parquet", kLines};
  // Arrow files begin with ARROW1; Arrow streams begin with this mark of a message.
  if (start.starts_with("ARROW1") || start.starts_with("\xff\xff\xff\xff")) {
    return {"Arrow", kLines};
  }
  if (start.starts_with("GGUF")) {
    return {"GGUF", "it is a model; --init reads the Hugging Face folder that it was made from"};
  }
  if (start.size() > 10 && start.substr(8, 2) == "{\"") {
    return {"safetensors", "it is a model; use --init with its Hugging Face folder"};
  }
  return {"binary", ""};
}

void SkippedFiles::add_binary(std::string_view start) {
  const std::string_view kind = binary_kind(start).name;
  ++(kind == "Parquet" ? parquet : kind == "Arrow" ? arrow : binary);
}

void SkippedFiles::add_unreadable(const std::string& what) {
  if (unreadable++ == 0) problem = what;
}

std::string SkippedFiles::describe() const {
  std::string text;
  const auto add = [&text](int64_t count, const std::string& what) {
    if (count > 0) text += cat(text.empty() ? "; skipped " : ", ", count, " ", what);
  };
  add(parquet, "Parquet");
  add(arrow, "Arrow");
  add(binary, "binary");
  add(unreadable, cat("unreadable (", problem, ")"));
  add(empty, "empty");
  add(repeated, "repeated");
  add(records, "JSON not in lines (jq -c '.[]' makes lines of an array)");
  add(not_utf8, "not UTF-8");
  add(no_lines, "without lines of JSON");
  add(test, "of test");
  return text;
}

std::vector<ListedFile> list_files(const std::string& root, SkippedFiles& skipped) {
  std::vector<ListedFile> files;
  std::vector<fs::path> pending = {root};
  while (!pending.empty()) {
    const fs::path folder = std::move(pending.back());
    pending.pop_back();
    list_folder(folder, root, files, pending, skipped);
  }
  std::sort(files.begin(), files.end(),
            [](const ListedFile& a, const ListedFile& b) { return a.name < b.name; });
  std::set<std::pair<dev_t, ino_t>> seen;
  skipped.repeated = static_cast<int64_t>(std::erase_if(
      files, [&seen](const ListedFile& file) { return !seen.insert(file.identity).second; }));
  return files;
}

}  // namespace shale::data_internal

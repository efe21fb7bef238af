#include "shale/runtime/data/text/text_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
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

// Lists one folder: appends its files to `files`, and its subfolders to `pending`.
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

namespace {

constexpr std::string_view kPython =
    "read it with python3 -m shale.data PATH | shale tokenize - --tokenizer FILE --out DIR, or "
    "| train_lm --data -";
constexpr std::string_view kModel = "it is a model; use --init with its Hugging Face folder";
constexpr std::string_view kImage = "train_image reads folders of images";
constexpr std::string_view kName = "it needs a tokenizer, and a name that ends with .gz or .zst";

// A file format that has a 0 byte near the start of its files.
struct Format {
  size_t offset;
  std::string_view magic;
  BinaryKind kind;
};
constexpr std::array kFormats = {
    Format{0, "PAR1", {"Parquet", kPython, true}},
    Format{0, "ARROW1", {"Arrow", kPython, true}},
    // Arrow stream: beginning of its first message
    Format{0, "\xff\xff\xff\xff", {"Arrow", kPython, true}},
    Format{257, "ustar", {"tar", kPython, true}},
    Format{0, "\x1f\x8b", {"gzip", kName}},
    Format{0, "\x28\xb5\x2f\xfd", {"zstd", kName}},
    Format{0, "GGUF", {"GGUF", kModel}},
    Format{8, "{\"", {"safetensors", kModel}},
    Format{0, "\x89PNG", {"PNG", kImage}},
    Format{0, "\xff\xd8\xff", {"JPEG", kImage}},
};

std::string command_for(std::string_view instead, std::string_view path) {
  std::string text(instead);
  if (const size_t at = text.find("PATH"); at != text.npos) text.replace(at, 4, path);
  return text;
}

}  // namespace

BinaryKind binary_kind(std::string_view start) {
  for (const Format& format : kFormats) {
    if (start.size() > format.offset && start.substr(format.offset).starts_with(format.magic)) {
      return format.kind;
    }
  }
  return {"binary", ""};
}

std::string describe_binary(const std::string& path, const BinaryKind& kind) {
  return cat(path, ": expected text or jsonl, found a ", kind.name, " file",
             kind.instead.empty() ? "" : "; ", command_for(kind.instead, path));
}

void SkippedFiles::add_binary(std::string_view start, int64_t bytes) {
  const BinaryKind kind = binary_kind(start);
  ++binary[kind.name];
  if (!kind.is_data) return;
  data_bytes += bytes;
  if (data_kind.empty()) data_kind = kind.name;
}

bool describes_data(std::string_view name) {
  return name.ends_with(".md") || name.ends_with(".json");
}

void SkippedFiles::require_text(const std::string& folder, int64_t text_bytes) const {
  if (data_bytes <= text_bytes) return;
  const auto size = [](int64_t bytes) { return format_bytes(static_cast<double>(bytes)); };
  throw DataError(cat(folder, ": expected text or jsonl, found ", size(data_bytes), " of ",
                      data_kind, " beside ", size(text_bytes), " of text; ",
                      command_for(kPython, folder)));
}

void SkippedFiles::add_unreadable(const std::string& what) {
  if (unreadable++ == 0) problem = what;
}

std::string SkippedFiles::describe() const {
  std::string text;
  const auto add = [&text](int64_t count, const std::string& what) {
    if (count > 0) text += cat(text.empty() ? "; skipped " : ", ", count, " ", what);
  };
  for (const auto& [kind, count] : binary) add(count, kind);
  add(unreadable, cat("unreadable (", problem, ")"));
  add(empty, "empty");
  add(repeated, "repeated");
  add(records, "JSON not in lines (python3 -m shale.data converts an array)");
  add(not_utf8, "not UTF-8");
  add(no_lines, "without lines of JSON");
  add(test, "of the test split");
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

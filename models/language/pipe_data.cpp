#include "shale/models/language/pipe_data.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/log.h"
#include "shale/models/training/output_folder.h"
#include "shale/models/training/watch_reading.h"
#include "shale/runtime/data/corpus/documents.h"
#include "shale/runtime/io/file.h"

namespace shale::models {
namespace {

constexpr const char* kCopy = "stdin";
constexpr const char* kPart = "stdin.part";

// Counts lines and keeps the last one, for check_stream_end().
class StreamCheck {
 public:
  void add(std::string_view text) {
    // `text` is the first part of the stream
    if (last_.empty()) is_stream_ = text.starts_with(kStreamBegin);
    lines_ += std::count(text.begin(), text.end(), '\n');
    // Keeps only the last line, without the line break at its end.
    last_ += text;
    const size_t line = last_.rfind('\n', last_.size() < 2 ? 0 : last_.size() - 2);
    if (line != last_.npos) last_.erase(0, line + 1);
  }
  void check(const std::string& name) const {
    if (is_stream_) check_stream_end(name, last_, lines_);
  }

 private:
  bool is_stream_ = false;
  int64_t lines_ = 0;
  std::string last_;
};

// Copies the pipe into the folder. Returns the number of bytes.
int64_t copy(const std::string& pipe, const Folder& folder) {
  PipeSource source(pipe, watch_reading());
  File file = File::create(folder, kPart);
  StreamCheck stream;
  std::vector<char> buffer(size_t{1} << 20);
  int64_t bytes = 0;
  while (const size_t got = source.read(buffer)) {
    const std::span<const char> part = std::span(buffer).first(got);
    stream.add({part.data(), part.size()});
    file.write_at(bytes, std::as_bytes(part));
    bytes += static_cast<int64_t>(got);
  }
  if (bytes == 0) throw DataError(cat(source.name(), ": empty, expected data"));
  stream.check(source.name());
  file.sync();
  file.close();
  return bytes;
}

}  // namespace

void copy_piped_data(TrainConfig& config, int ranks) {
  std::string& data = config.language.source.data;
  if (!is_pipe(data)) return;
  const std::string pipe = std::exchange(data, file_in(config.run.out, kCopy));
  const std::string name = pipe == "-" ? "standard input" : pipe;
  const bool resumes = config.run.resume != "none";
  std::error_code error;
  if (resumes && std::filesystem::exists(data, error)) {
    log_info("data: ", data, ", which an earlier run read from ", name);
    return;
  }
  if (ranks > 1) {
    throw ConfigError(cat("--data ", pipe, " needs one rank (found ", ranks,
                          "); write tokens first: ... | shale tokenize - --tokenizer FILE --out "
                          "DIR, and use --data DIR"));
  }
  make_folder(config.run.out);
  const Folder folder = Folder::open(config.run.out);
  if (folder.has(kPart)) {
    if (resumes) {
      throw DataError(cat(folder.path_of(kPart), ": an earlier run was killed while it read ", name,
                          "; remove this file, and pipe all data again"));
    }
    folder.remove_file(kPart);
  }
  try {
    log_info("data: ", format_bytes(static_cast<double>(copy(pipe, folder))), " of ", name, " in ",
             data);
  } catch (...) {
    if (folder.has(kPart)) folder.remove_file(kPart);
    throw;
  }
  folder.rename(kPart, kCopy);
  folder.sync();
}

}  // namespace shale::models

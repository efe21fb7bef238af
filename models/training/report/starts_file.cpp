#include "shale/models/training/report/starts_file.h"

#include <string_view>

#include "shale/base/error.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/json_object.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

std::string line_of(const RunStart& start) {
  return cat("{\"step\": ", start.step, ", \"ranks\": ", start.ranks, ", \"time\": \"",
             start.time, "\"}\n");
}

}  // namespace

void add_start(const std::filesystem::path& path, const RunStart& start) {
  std::string text;
  for (const RunStart& before : read_starts(path)) text += line_of(before);
  write_file_atomically(path.string(), text + line_of(start));
}

std::vector<RunStart> read_starts(const std::filesystem::path& path) {
  std::vector<RunStart> starts;
  if (!std::filesystem::exists(path)) return starts;
  const MappedFile file(path.string(), {.allow_empty = true});
  std::string_view text = file.text();
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == text.npos) break;
    const JsonObject line(text.substr(0, end), cat(path.string(), ":", number));
    starts.push_back(
        {line.integer("step"), static_cast<int>(line.integer("ranks")), line.text("time")});
    text.remove_prefix(end + 1);
  }
  file.check();
  return starts;
}

}  // namespace shale::models

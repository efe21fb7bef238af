#include "shale/models/training/report/json_lines.h"

#include <filesystem>
#include <string_view>

#include "shale/base/text.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {

void for_each_line(const std::string& path,
                   const std::function<void(const JsonObject& line)>& use) {
  if (!std::filesystem::exists(path)) return;
  const MappedFile file(path, {.allow_empty = true});
  std::string_view text = file.text();
  for (int64_t number = 1;; ++number) {
    const size_t end = text.find('\n');
    if (end == text.npos) break;
    use(JsonObject(text.substr(0, end), cat(path, ":", number)));
    text.remove_prefix(end + 1);
  }
  file.check();
}

}  // namespace shale::models

#include "shale/models/training/report/starts_file.h"

#include "shale/base/error.h"
#include "shale/models/training/report/json_lines.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

std::string line_of(const RunStart& start) {
  return cat("{\"step\": ", start.step, ", \"ranks\": ", start.ranks, ", \"time\": \"", start.time,
             "\", \"device\": \"", start.device, "\", \"parameters\": ", start.parameters, "}\n");
}

}  // namespace

void add_start(const std::string& path, const RunStart& start) {
  std::string text;
  for (const RunStart& before : read_starts(path)) text += line_of(before);
  write_file_atomically(path, text + line_of(start));
}

std::vector<RunStart> read_starts(const std::string& path) {
  std::vector<RunStart> starts;
  for_each_line(path, [&](const JsonObject& line) {
    starts.push_back({line.integer("step"), static_cast<int>(line.integer("ranks")),
                      line.text("time"), line.text("device", ""), line.integer("parameters", 0)});
  });
  return starts;
}

}  // namespace shale::models

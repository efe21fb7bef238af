// shale trace: analyses traces of steps.
#include <array>
#include <cstdio>
#include <string>

#include "shale/base/config.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/report/trace_file.h"
#include "shale/models/views/trace_report.h"
#include "shale/models/views/trace_svg.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

int run_trace_report(int argc, const char* const* argv) {
  std::string file;
  ConfigSpec spec(
      "shale trace report",
      "prints where the time of a step goes, what ranks wait for, and which rank is late");
  spec.add_positional("file", file, "trace file that --trace wrote",
                      {.required = true, .is_path = true});
  const ParseResult parsed = parse_config(spec, argc, argv);
  const std::string text = parsed.should_exit ? parsed.output : trace_report(read_trace(file));
  std::fputs(text.c_str(), stdout);
  return 0;
}

int run_trace_draw(int argc, const char* const* argv) {
  std::string file, out;
  int64_t step = 0;
  ConfigSpec spec("shale trace draw", "draws the timeline of a step on all ranks");
  spec.add_positional("file", file, "trace file that --trace wrote",
                      {.required = true, .is_path = true});
  spec.add("out", out, "SVG file to write",
           {.required = true, .is_path = true, .help = {.metavar = "FILE"}});
  spec.add("step", step, "step to draw, counted from 1; 0: the first step in the file", {.min = 0});
  if (parse_or_print(spec, argc, argv)) return 0;
  write_file_atomically(out, trace_svg(read_trace(file), step));
  std::printf("wrote %s\n", out.c_str());
  return 0;
}

}  // namespace

int run_trace(int argc, const char* const* argv) {
  static constexpr std::array kActions = {
      Tool{"report", "prints where the time of a step goes, and which rank is late",
           run_trace_report},
      Tool{"draw", "draws the timeline of a step on all ranks", run_trace_draw},
  };
  return run_tool({.program = "shale trace",
                   .summary = "analyses the traces of train_lm --trace",
                   .what = "action",
                   .closing = "Viewers such as ui.perfetto.dev show the same file.",
                   .tools = kActions},
                  argc, argv);
}

}  // namespace shale::models

// shale report and metrics: show the reports of runs, as a page and as a table.
#include <cstdio>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/views/run_data.h"
#include "shale/models/views/run_page.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

std::string metrics_path(const std::string& run) {
  namespace fs = std::filesystem;
  return fs::is_regular_file(run) ? run : (fs::path(run) / "metrics.jsonl").string();
}

}  // namespace

int run_report(int argc, const char* const* argv) {
  std::string out = "report.html";
  ConfigSpec spec("shale report RUN...",
                  "writes an HTML report that compares runs (--out folders)");
  spec.section("Options");
  spec.add("out", out, "HTML file to write, self-contained; -o FILE works too", {.is_path = true});
  spec.example("shale report out -o report.html");
  // Accepts "-o" too, as users type it.
  std::vector<const char*> words(argv, argv + argc);
  for (const char*& word : words) {
    if (std::string_view(word) == "-o") word = "--out";
  }
  std::vector<std::string> runs;
  if (parse_or_print(spec, argc, words.data(), runs)) return 0;
  if (runs.empty())
    throw ConfigError(
        "shale report: expected run folders, found none; for example: shale report out");
  std::vector<RunData> data;
  for (const std::string& run : runs) data.push_back(RunReader(run).read());
  write_file_atomically(out, run_page(run_feed(data)));
  std::printf("wrote %s\n", out.c_str());
  return 0;
}

int run_metrics(int argc, const char* const* argv) {
  std::string run;
  bool csv = false;
  ConfigSpec spec("shale metrics", "prints the metrics of a run as CSV");
  spec.add_positional("run", run, "folder of a run, or its metrics.jsonl",
                      {.required = true, .is_path = true});
  spec.section("Options");
  spec.add("csv", csv,
           "CSV (RFC 4180), the only format: a header and a row for each line of metrics.jsonl");
  spec.example("shale metrics out --csv > metrics.csv");
  if (parse_or_print(spec, argc, argv)) return 0;
  const std::string path = metrics_path(run);
  const MappedFile file(path, {.pattern = AccessPattern::kSequential, .allow_empty = true});
  const std::string text = csv_of_metrics(file.text(), path);
  file.check();
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    throw DiskError("shale metrics: cannot write to standard output");
  }
  return 0;
}

}  // namespace shale::models

// Makes a Markdown page from the --json files of the other benchmarks; bench/run_cpu.sh calls it.
#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/text_file.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/report.h"
#include "shale/comm/world.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::bench {
namespace {

Json read_json(const std::filesystem::path& path) {
  constexpr JsonLimits kLimits{.max_bytes = int64_t{1} << 30};
  const std::string text = read_text_file(path.string(), kLimits.max_bytes);
  Json document = Json::parse(text, kLimits, path.string());
  if (!document.contains("rows") || !document["rows"].is_array()) {
    throw DataError(cat(path.string(), ": expected a JSON object with an array \"rows\""));
  }
  return document;
}

// Reads all .json files of the folder, in the order of their names.
std::vector<Json> read_folder(const std::string& folder) {
  if (!std::filesystem::is_directory(folder)) {
    throw MissingInputError(cat("--rows: ", folder, " is no folder"));
  }
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path());
  }
  if (paths.empty()) throw MissingInputError(cat("--rows: no .json file in ", folder));
  std::sort(paths.begin(), paths.end());
  std::vector<Json> documents;
  for (const auto& path : paths) documents.push_back(read_json(path));
  return documents;
}

int run(int argc, char** argv) {
  std::string rows, out;
  ReportFacts facts;
  ConfigSpec spec("bench_report", "makes a Markdown page of benchmark rows");
  spec.add("rows", rows, "folder with the --json files of the benchmarks",
           {.required = true, .is_path = true, .help = {.metavar = "DIR"}});
  spec.add("out", out, "file to write; without it the page goes to standard output",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.add("commit", facts.commit, "commit that was built", {.help = {.metavar = "HASH"}});
  spec.add("mpi", facts.mpi, "name and version of MPI", {.help = {.metavar = "TEXT"}});
  spec.example("bench_report --rows rows/ --out results.md --commit $(git rev-parse --short HEAD)");
  if (parse_or_print(spec, argc, argv)) return 0;
  const std::string page = results_page(read_folder(rows), facts);
  if (out.empty()) {
    std::fputs(page.c_str(), stdout);
  } else {
    write_file_atomically(out, page);
  }
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::comm::run(argc, argv,
                          [&](shale::comm::World&) { return shale::bench::run(argc, argv); });
}

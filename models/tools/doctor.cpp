// shale doctor: examines this machine for training, on one page.
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/tools/doctor.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"
#include "shale/models/training/checks/disk_room.h"

namespace shale::models {
namespace {

using doctor::Finding;
using doctor::Findings;
using doctor::State;

std::string_view name_of(State state) {
  switch (state) {
    case State::kOk: return "ok";
    case State::kWarning: return "warning";
    case State::kFailed: return "FAILED";
  }
  return "unknown";
}

std::string host_and_system() {
  utsname name{};
  if (uname(&name) != 0) return "this machine";
  return cat(std::string_view(name.nodename), ", ", std::string_view(name.sysname), " ",
             std::string_view(name.release));
}

std::string padded(std::string_view text, size_t width) {
  return cat(text, std::string(width > text.size() ? width - text.size() : 1, ' '));
}

std::string counted(int64_t count, std::string_view what) {
  return cat(count, " ", what, count == 1 ? "" : "s");
}

int64_t count(const Findings& findings, State state) {
  return std::count_if(findings.begin(), findings.end(),
                       [&](const Finding& finding) { return finding.state == state; });
}

std::string verdict(const Findings& findings) {
  const int64_t failed = count(findings, State::kFailed);
  const int64_t warnings = count(findings, State::kWarning);
  std::string text = failed > 0 ? cat("Training cannot run here: ", counted(failed, "failure"))
                                : std::string("Training can run here");
  return text +
         (warnings > 0 ? cat(failed > 0 ? " and " : ", with ", counted(warnings, "warning"))
                       : std::string()) +
         ".";
}

std::string page(const Findings& findings) {
  constexpr size_t kStateWidth = 9, kNameWidth = 18;
  std::string text = cat("Shale doctor: ", host_and_system(), "\n");
  std::string_view section;
  for (const Finding& finding : findings) {
    if (finding.section != section) text += cat("\n", finding.section, "\n");
    section = finding.section;
    text += cat("  ", padded(name_of(finding.state), kStateWidth), padded(finding.name, kNameWidth),
                finding.value, "\n");
    if (!finding.fix.empty()) {
      text += cat("  ", std::string(kStateWidth + kNameWidth, ' '), "fix: ", finding.fix, "\n");
    }
  }
  return cat(text, "\n", verdict(findings), "\n");
}

std::string json(const Findings& findings) {
  Json rows = Json::array();
  for (const Finding& finding : findings) {
    rows.push_back({{"section", finding.section},
                    {"name", finding.name},
                    {"state", finding.state == State::kFailed ? "failed" : name_of(finding.state)},
                    {"value", finding.value},
                    {"fix", finding.fix}});
  }
  Json page = {{"host", host_and_system()},
               {"can_train", count(findings, State::kFailed) == 0},
               {"findings", std::move(rows)}};
  return page.dump(2) + "\n";
}

}  // namespace

int run_doctor(int argc, const char* const* argv) {
  if (argc == 2 && std::string_view(argv[1]) == doctor::kAsRank) return doctor::run_as_rank();
  if (argc == 5 && std::string_view(argv[1]) == doctor::kAsBenchRank) {
    return doctor::run_as_bench_rank({.pipeline = std::atoi(argv[2]),
                                      .context = std::atoi(argv[3]),
                                      .tensor = std::atoi(argv[4])});
  }
  bool as_json = false, quick = false, bench = false;
  doctor::BenchOptions measured{.folder = temporary_folder()};
  ConfigSpec spec("shale doctor",
                  "checks what this machine can run, and how to fix what is missing");
  spec.example("shale doctor");
  spec.example("shale doctor --json");
  spec.section("Flags");
  spec.add("json", as_json, "print a JSON object with a list of findings");
  spec.add("quick", quick, "do not test whether mpirun can start two ranks");
  spec.add("bench", bench, "also measure memory, GEMMs, a disk and the links between ranks");
  spec.add("folder", measured.folder, "--bench: folder on the disk to measure, needs 256 MiB",
           {.is_path = true, .help = {.default_text = "TMPDIR or /tmp"}});
  spec.add("ranks", measured.ranks, "--bench: number of ranks to start with mpirun",
           {.min = 1, .max = 4096});
  spec.add("pipeline", measured.pipeline, "--bench: ranks along the pipeline axis", {.min = 1});
  spec.add("context", measured.context, "--bench: ranks along the context axis", {.min = 1});
  spec.add("tensor", measured.tensor, "--bench: ranks along the tensor axis", {.min = 1});
  spec.add("hostfile", measured.hostfile, "--bench: hostfile for mpirun",
           {.is_path = true, .help = {.default_text = "this machine"}});
  if (parse_or_print(spec, argc, argv)) return 0;
  Findings findings;
  doctor::examine_cpu(findings);
  doctor::examine_memory(findings);
  doctor::examine_disks(findings);
  doctor::examine_gpus(findings);
  doctor::examine_kernels(findings);
  doctor::examine_mpi(findings, /*start_ranks=*/!quick);
  doctor::examine_libraries(findings);
  if (bench) doctor::measure(findings, measured);
  std::fputs((as_json ? json(findings) : page(findings)).c_str(), stdout);
  const bool failed = count(findings, State::kFailed) > 0;
  return static_cast<int>(failed ? ExitCode::kUnavailable : ExitCode::kOk);
}

}  // namespace shale::models

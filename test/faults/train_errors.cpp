// Injects disk faults into train_lm, which writes checkpoints on a background thread. Whichever
// rank is hit, the run must end with exit code 74 and a line that names path and reason (or
// continue with a warning, if only something old could not be deleted), lose no committed
// checkpoint, and be resumable by the same command.

#include <cerrno>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/models/training/report/metrics.h"
#include "shale/runtime/io/file.h"
#include "shale/test/faults/crash_model.h"
#include "shale/test/faults/faulty_run.h"
#include "shale/test/faults/saver.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

constexpr int64_t kSteps = 6;

constexpr int kAllRanks = -1;

struct Training {
  const TempDir& dir;
  int ranks = 1;
  int faulty_rank = 0;  // rank whose calls fail, or kAllRanks
  DiskFault fault = {};
};

FaultyRun train(const Training& training) {
  const std::string text = training.dir.file("text.txt");
  const std::string program =
      cat(SHALE_TRAIN_LM " --data '", text, "' --out '", training.dir.file("out"),
          "' --layers 1 --width 32 --heads 2 --seq-len 16 --global-batch 2 --micro-batch 1"
          " --threads 1 --device cpu --steps ",
          kSteps, " --save-every 2 --keep 2 --resume auto");
  DiskFault fault = training.fault;
  if (fault.under.empty()) fault.under = training.dir.file("out/checkpoints");
  if (training.ranks == 1) return run_with_fault(fault, "timeout 60", program);
  const std::string launcher = "timeout 100 " SHALE_MPIRUN " --oversubscribe --bind-to none ";
  if (training.faulty_rank == kAllRanks) {
    return run_with_fault(fault, cat(launcher, "-np ", training.ranks), program);
  }
  const std::string others = cat("-np ", training.ranks - 1, " ", program);
  if (training.faulty_rank == 0) {
    return run_with_fault(fault, launcher + "-np 1", program, ": " + others);
  }
  return run_with_fault(fault, launcher + others + " : -np 1", program);
}

// Last step of the lines "saved step N"; 0 if none.
int64_t last_saved(const std::string& output) {
  const std::string words = "saved step ";
  const size_t place = output.rfind(words);
  return place == std::string::npos ? 0 : std::atoll(output.c_str() + place + words.size());
}

// Step that the file "latest" names after these calls; 0 if none. The file is written after a
// checkpoint is committed, so the checkpoint of that step must survive.
int64_t last_committed(const std::vector<DiskCall>& calls, size_t count) {
  int64_t written = 0;
  int64_t committed = 0;
  for (size_t i = 0; i < count; ++i) {
    const DiskCall& call = calls[i];
    if (!contains(call.path, "/.latest.tmp-")) continue;
    if (call.op == DiskOp::kWrite) {
      written = parse_checkpoint_name(call.data.substr(0, call.data.find('\n'))).value();
    }
    if (call.op == DiskOp::kRename) committed = written;
  }
  return committed;
}

// Checks that a run resumed from this step finds the losses of all earlier steps. Returns the
// problem, or "".
std::string problem_with_metrics(const std::string& path, int64_t step) {
  if (step == 0) return {};  // the run starts from scratch
  try {
    drop_metrics_after(path, step);
    int64_t next = 1;
    for (const MetricsRow& row : read_metrics(path)) {
      const auto* metrics = std::get_if<StepMetrics>(&row);
      if (metrics != nullptr && metrics->step == next) ++next;
    }
    return next == step + 1 ? "" : cat("no row of step ", next, " before the checkpoint's");
  } catch (const Error& error) {
    return error.what();
  }
}

// First line that contains `word`; empty if there is none.
std::string line_with(const std::string& text, const std::string& word) {
  const size_t place = text.find(word);
  if (place == std::string::npos) return {};
  const size_t begin = text.rfind('\n', place) + 1;
  return text.substr(begin, text.find('\n', place) - begin);
}

std::string problem_of(const std::string& kind, int want_errno, int64_t at, int ranks,
                       int faulty_rank) {
  const TempDir dir;
  std::string text;
  for (int i = 0; i < 500; ++i) text += cat("line ", i, " of a text that is long enough\n");
  dir.write("text.txt", text);
  const CheckpointFolder checkpoints(dir.file("out/checkpoints"));
  const FaultyRun run = train({.dir = dir,
                               .ranks = ranks,
                               .faulty_rank = faulty_rank,
                               .fault = {.under = {}, .kind = kind, .at = at}});
  const auto fail = [&](const auto&... what) {
    return cat(kind, " at call ", at, " of rank ", faulty_rank, " of ", ranks, ": ", what...,
               "; it printed: ", run.errors, "\n");
  };
  if (run.code != 74 && run.code != 0) return fail("exit code ", run.code);
  const std::string line = line_with(run.errors, run.code == 74 ? "error:" : "warning:");
  if (!contains(line, checkpoints.path())) return fail("no path");
  if (!contains(line, cat("(errno ", want_errno, ")"))) return fail("no reason");
  const std::string problem = problem_with_checkpoints(checkpoints, last_saved(run.output));
  if (!problem.empty()) return fail(problem);
  const FaultyRun next = train({.dir = dir, .ranks = ranks});
  if (next.code != 0) return fail("the next run ends with ", next.code, ", ", next.errors);
  const std::string later = problem_with_checkpoints(checkpoints, kSteps) + leftover(checkpoints);
  return later.empty() ? "" : fail("after the next run: ", later);
}

// Number of calls that concern checkpoints in a run without faults and that the fault can affect.
int64_t calls_of_a_run(const std::string& kind, int ranks, int rank) {
  const TempDir dir;
  dir.write("text.txt", std::string(5000, 'x'));
  const FaultyRun run = train({.dir = dir, .ranks = ranks, .faulty_rank = rank});
  CAPTURE(run.errors);
  REQUIRE(run.code == 0);
  REQUIRE(last_saved(run.output) == kSteps);
  return last_call(run, kind);
}

// Makes every `stride`-th call of one rank fail in turn, from call `first` on.
std::string problems(const std::string& kind, int want_errno, int ranks, int faulty_rank,
                     int64_t first, int64_t stride) {
  std::string all;
  const int64_t calls = calls_of_a_run(kind, ranks, faulty_rank);
  CHECK(calls > 10);
  for (int64_t at = first; at <= calls; at += stride) {
    all += problem_of(kind, want_errno, at, ranks, faulty_rank);
  }
  return all;
}

}  // namespace

TEST_CASE("a disk error at some calls of train_lm ends it cleanly and loses nothing", "[faults]") {
  CHECK(problems("eio", EIO, 1, 0, 5, 17) == "");
}

TEST_CASE("a full disk under one rank of two ends both cleanly and loses nothing", "[faults]") {
  CHECK(problems("full", ENOSPC, 2, 0, 9, 40) == "");
  CHECK(problems("full", ENOSPC, 2, 1, 3, 13) == "");
}

// Simulates crashes on the calls of all ranks, in the order in which they returned.
TEST_CASE("a power failure while two ranks train loses no committed checkpoint, and no loss before",
          "[faults]") {
  const TempDir dir;
  dir.write("text.txt", std::string(5000, 'x'));
  Folder::make(dir.file("out"));
  const FaultyRun run = train(
      {.dir = dir, .ranks = 2, .faulty_rank = kAllRanks, .fault = {.under = dir.file("out")}});
  CAPTURE(run.errors);
  REQUIRE(run.code == 0);
  REQUIRE(last_committed(run.calls, run.calls.size()) == kSteps);
  CrashModel model(dir.file("out"));
  std::string problems;
  for (size_t count = 0; count <= run.calls.size(); ++count) {
    if (count > 0) model.apply(run.calls[count - 1]);
    for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kAny}) {
      const TempDir scratch;
      const std::string disk = scratch.file("disk");
      model.lay_out(disk, unsynced, count);
      const int64_t committed = last_committed(run.calls, count);
      const std::string problem =
          problem_with_checkpoints(CheckpointFolder(disk + "/checkpoints"), committed) +
          problem_with_metrics(disk + "/metrics.jsonl", committed);
      if (!problem.empty()) problems += cat("after ", count, " calls: ", problem, "\n");
    }
  }
  CHECK(problems == "");
}

TEST_CASE("a disk error at every call of train_lm ends it cleanly", "[.][faults_long]") {
  CHECK(problems("eio", EIO, 1, 0, 1, 1) == "");
}

TEST_CASE("a disk error at every call of the first of two ranks ends both", "[.][faults_long]") {
  CHECK(problems("eio", EIO, 2, 0, 1, 1) == "");
}

TEST_CASE("a disk error at every call of the last of two ranks ends both", "[.][faults_long]") {
  CHECK(problems("eio", EIO, 2, 1, 1, 1) == "");
}

}  // namespace shale::test

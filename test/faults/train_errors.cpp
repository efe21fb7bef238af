// Injects disk faults into one rank or all ranks of train_lm, which writes checkpoints on a
// background thread. If the disk recovers, the run must go on with the same losses and a warning
// that names path and reason. If not, it must end with exit code 74 and an error that names both.
// It must lose no committed checkpoint, and the same command must be able to resume it.

#include <bit>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
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
  int faulty_rank = 0;  // number of the rank that has the fault, or kAllRanks
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

// Returns the step of the last line "saved step N", or 0.
int64_t last_saved(const std::string& output) {
  const std::string words = "saved step ";
  const size_t place = output.rfind(words);
  return place == std::string::npos ? 0 : std::atoll(output.c_str() + place + words.size());
}

// Returns the step that the file "latest" names after the first `count` calls, or 0. A run writes
// the file after it has committed the checkpoint, so that checkpoint must survive.
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

// Returns the first line that contains `word`, or "".
std::string line_with(const std::string& text, const std::string& word) {
  const size_t place = text.find(word);
  if (place == std::string::npos) return {};
  const size_t begin = text.rfind('\n', place) + 1;
  return text.substr(begin, text.find('\n', place) - begin);
}

// Returns the bits of the losses of all steps.
std::string losses_of(const TempDir& dir) {
  std::string bits;
  const std::string path = dir.file("out/metrics.jsonl");
  if (!std::filesystem::exists(path)) return bits;
  for (const MetricsRow& row : read_metrics(path)) {
    const auto* step = std::get_if<StepMetrics>(&row);
    if (step != nullptr) bits += cat(step->step, ":", std::bit_cast<uint32_t>(step->loss), " ");
  }
  return bits;
}

void write_text(const TempDir& dir) {
  std::string text;
  for (int i = 0; i < 500; ++i) text += cat("line ", i, " of a text that is long enough\n");
  dir.write("text.txt", text);
}

// `calls` is the number of calls that fail; `want` has the losses of a run without faults.
std::string problem_of(const std::string& kind, int want_errno, int64_t at, int64_t calls,
                       int ranks, int faulty_rank, const std::string& want) {
  const TempDir dir;
  write_text(dir);
  const CheckpointFolder checkpoints(dir.file("out/checkpoints"));
  const FaultyRun run = train({.dir = dir,
                               .ranks = ranks,
                               .faulty_rank = faulty_rank,
                               .fault = {.under = {}, .kind = kind, .at = at, .calls = calls}});
  const auto fail = [&](const auto&... what) {
    return cat(kind, " at call ", at, " of rank ", faulty_rank, " of ", ranks, ": ", what...,
               "; it printed: ", run.errors, "\n");
  };
  if (run.code != 74 && run.code != 0) return fail("exit code ", run.code);
  const std::string line = line_with(run.errors, cat("(errno ", want_errno, ")"));
  if (line.empty()) return fail("no reason");
  if (run.code == 74 && !contains(run.errors, "error:")) return fail("no error");
  if (!contains(line, checkpoints.path())) return fail("no path");
  const std::string problem = problem_with_checkpoints(checkpoints, last_saved(run.output));
  if (!problem.empty()) return fail(problem);
  // If the run has begun to train and the disk recovers, the run must succeed.
  const std::string losses = losses_of(dir);
  if (run.code != 0 && kind != "full" && !losses.empty()) return fail("exit code ", run.code);
  if (run.code == 0 && losses != want) return fail("other losses");
  const FaultyRun next = train({.dir = dir, .ranks = ranks});
  if (next.code != 0) return fail("the next run ends with ", next.code, ", ", next.errors);
  const std::string later = problem_with_checkpoints(checkpoints, kSteps) + leftover(checkpoints);
  return later.empty() ? "" : fail("after the next run: ", later);
}

// In run after run, makes `calls` successive calls of one rank fail. The first failing call is
// `first`, then `first` + `stride`, and so on.
std::string problems(const std::string& kind, int want_errno, int ranks, int faulty_rank,
                     int64_t first, int64_t stride, int64_t calls = 1) {
  const TempDir dir;
  write_text(dir);
  const FaultyRun run = train({.dir = dir, .ranks = ranks, .faulty_rank = faulty_rank});
  CAPTURE(run.errors);
  REQUIRE(run.code == 0);
  REQUIRE(last_saved(run.output) == kSteps);
  const std::string want = losses_of(dir);
  const int64_t all_calls = last_call(run, kind);  // number of calls that the fault can affect
  CHECK(all_calls > 10);
  std::string all;
  for (int64_t at = first; at <= all_calls; at += stride) {
    all += problem_of(kind, want_errno, at, calls, ranks, faulty_rank, want);
  }
  return all;
}

}  // namespace

TEST_CASE("train_lm goes on after a disk error at some calls, with the same losses", "[faults]") {
  CHECK(problems("eio", EIO, 1, 0, 5, 23) == "");
}

TEST_CASE("train_lm goes on when several calls in a row find the disk broken or full", "[faults]") {
  CHECK(problems("eio", EIO, 1, 0, 9, 40, 7) == "");
  CHECK(problems("enospc", ENOSPC, 2, 0, 15, 60, 5) == "");
  CHECK(problems("enospc", ENOSPC, 2, 1, 4, 25, 3) == "");
}

TEST_CASE("a full disk under one rank of two ends both cleanly and loses nothing", "[faults]") {
  CHECK(problems("full", ENOSPC, 2, 0, 9, 60) == "");
  CHECK(problems("full", ENOSPC, 2, 1, 3, 25) == "");
}

TEST_CASE("metrics that the disk does not take for a while are all written", "[faults]") {
  const TempDir dir;
  write_text(dir);
  const std::string metrics = dir.file("out/metrics.jsonl");
  // Call 4 is the write of the second row of metrics.
  const DiskFault fault{.under = metrics, .kind = "eio", .at = 4, .calls = 3};
  const FaultyRun run = train({.dir = dir, .fault = fault});
  CAPTURE(run.errors);
  CHECK(run.code == 0);
  CHECK(contains(run.errors, metrics + ": cannot be"));
  CHECK(problem_with_metrics(metrics, kSteps) == "");
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

TEST_CASE("train_lm goes on after a disk error at every call", "[.][faults_long]") {
  CHECK(problems("eio", EIO, 1, 0, 1, 1) == "");
}

TEST_CASE("two ranks go on after a disk error at every call of the first", "[.][faults_long]") {
  CHECK(problems("eio", EIO, 2, 0, 1, 1) == "");
}

TEST_CASE("two ranks go on after a disk error at every call of the last", "[.][faults_long]") {
  CHECK(problems("eio", EIO, 2, 1, 1, 1) == "");
}

}  // namespace shale::test

// Simulates a crash after each disk operation of saving. Each crash leaves the disk in one of
// several possible states. In each state, all committed checkpoints must be intact, and a run must
// be able to resume.

#include <string>
#include <vector>

#include "shale/base/text.h"
#include "shale/test/faults/crash_model.h"
#include "shale/test/faults/saver.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// The saver keeps two checkpoints, so the last steps delete older ones.
constexpr int64_t kSteps = 4;

struct Recorded {
  TempDir dir;
  std::vector<DiskCall> calls;

  Recorded() {
    const SaverOutcome outcome = run_saver({.folder = dir.path(), .count = kSteps});
    REQUIRE(outcome.run.code == 0);
    REQUIRE(outcome.saved == kSteps);
    calls = outcome.run.calls;
  }
};

// Checks one state of the disk, then saves to it as the next run would. Returns the problem, or "".
std::string problem_of(const CrashModel& model, Unsynced unsynced, uint64_t seed, int64_t saved) {
  const TempDir scratch;
  const std::string root = scratch.file("disk");
  model.lay_out(root, unsynced, seed);
  const std::string problem = problem_after_fault(root, saved);
  if (!problem.empty()) return problem;
  const CheckpointFolder folder(root + "/checkpoints");
  save_sample(folder, kSteps + 1, {.ranks = kSaverRanks, .rows = 100});
  folder.retire(2, kSteps + 1);
  return problem_after_fault(root, kSteps + 1);
}

// Checks the disk after each prefix of the calls, in fixed states and in `seeds` random ones.
std::string problems(const Recorded& recorded, uint64_t seeds, int64_t& states) {
  std::string all;
  CrashModel model(recorded.dir.path());
  for (size_t count = 0; count <= recorded.calls.size(); ++count) {
    if (count > 0) model.apply(recorded.calls[count - 1]);
    const int64_t saved = last_saved(recorded.calls, count);
    std::vector<std::pair<Unsynced, uint64_t>> kinds = {{Unsynced::kLost, 0},
                                                        {Unsynced::kKept, 0},
                                                        {Unsynced::kNamesKept, 0},
                                                        {Unsynced::kZeroed, 0}};
    for (uint64_t seed = 0; seed < seeds; ++seed) kinds.push_back({Unsynced::kAny, seed});
    for (const auto& [kind, seed] : kinds) {
      ++states;
      const std::string problem = problem_of(model, kind, seed * 1000 + count, saved);
      if (problem.empty()) continue;
      const std::string last = count == 0 ? "" : recorded.calls[count - 1].name;
      all += cat("after ", count, " calls, ", last, ", state ", static_cast<int>(kind), ", seed ",
                 seed, ": ", problem, "\n");
    }
  }
  return all;
}

}  // namespace

TEST_CASE("a power failure after any call loses no committed checkpoint", "[faults]") {
  int64_t states = 0;
  CHECK(problems(Recorded(), 2, states) == "");
  CHECK(states > 600);
}

TEST_CASE("a power failure after any call, in many states of the disk", "[.][faults_long]") {
  int64_t states = 0;
  CHECK(problems(Recorded(), 200, states) == "");
  CHECK(states > 20'000);
}

// Shows that the crash model detects mistakes: a program that does not sync loses checkpoints.
TEST_CASE("without any one kind of sync, a power failure loses a checkpoint", "[faults]") {
  Recorded recorded;
  const DiskOp left_out = GENERATE(DiskOp::kSyncFile, DiskOp::kSyncFolder);
  std::vector<DiskCall> calls;
  for (const DiskCall& call : recorded.calls) {
    if (call.op != left_out) calls.push_back(call);
  }
  CrashModel model(recorded.dir.path());
  std::string found;
  for (const DiskCall& call : calls) model.apply(call);
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kNamesKept}) {
    const TempDir scratch;
    model.lay_out(scratch.file("disk"), unsynced);
    found += problem_after_fault(scratch.file("disk"), kSteps);
  }
  CHECK(found != "");
}

}  // namespace shale::test

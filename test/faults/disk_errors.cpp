// Makes each system call of saving fail, one per run, in each possible way. The program must end
// with exit code 74 and one line that names path and reason, and must lose no committed checkpoint.
// The next run must succeed.

#include <algorithm>
#include <cerrno>
#include <string>

#include "shale/base/text.h"
#include "shale/test/faults/saver.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// Returns the number of calls that the fault can affect, in a run without faults. All runs have the
// same number, because it does not depend on time.
int64_t calls_of_a_run(const std::string& kind) {
  const TempDir dir;
  const SaverOutcome outcome = run_saver({.folder = dir.path(), .count = 3});
  REQUIRE(outcome.run.code == 0);
  REQUIRE(outcome.saved == 3);
  const int64_t last = last_call(outcome.run, kind);
  REQUIRE(last > 60);
  return last;
}

// Runs save_checkpoints once with a fault and checks the result. Returns the problem, or "".
std::string problem_of(const std::string& kind, int64_t at, int want_code, int want_errno) {
  const TempDir dir;
  const SaverOutcome outcome =
      run_saver({.folder = dir.path(), .count = 3, .fault_kind = kind, .fault_at = at});
  const auto fail = [&](const auto&... what) {
    return cat(kind, " at call ", at, ": ", what..., "; it printed: ", outcome.run.errors);
  };
  if (outcome.run.code != want_code)
    return fail("exit code ", outcome.run.code, ", expected ", want_code);
  if (want_errno != 0) {
    const std::string reason = cat("(errno ", want_errno, ")");
    if (std::count(outcome.run.errors.begin(), outcome.run.errors.end(), '\n') != 1)
      return fail("lines");
    if (!contains(outcome.run.errors, dir.path().string())) return fail("no path");
    if (!contains(outcome.run.errors, reason)) return fail("no ", reason);
  }
  const std::string problem = problem_after_fault(dir.path(), outcome.saved);
  if (!problem.empty()) return fail(problem);
  // Runs save_checkpoints again, with a healthy disk.
  const SaverOutcome next = run_saver({.folder = dir.path(), .first = outcome.saved + 1});
  if (next.run.code != 0)
    return fail("the next run ends with ", next.run.code, ", ", next.run.errors);
  const std::string later = problem_after_fault(dir.path(), outcome.saved + 2);
  return later.empty() ? "" : fail("after the next run: ", later);
}

// Makes every `stride`-th call fail in turn.
std::string problems(const std::string& kind, int64_t stride, int want_code, int want_errno) {
  std::string all;
  const int64_t calls = calls_of_a_run(kind);
  for (int64_t at = 1; at <= calls; at += stride) {
    const std::string problem = problem_of(kind, at, want_code, want_errno);
    if (!problem.empty()) all += problem + "\n";
  }
  return all;
}

}  // namespace

TEST_CASE("a disk error at some calls ends the program cleanly and loses nothing", "[faults]") {
  // The strides have no common factor, so that each kind of fault hits different calls.
  CHECK(problems("eio", 5, 74, EIO) == "");
  CHECK(problems("enospc", 7, 74, ENOSPC) == "");
}

TEST_CASE("a disk that is full from some call on loses nothing", "[faults]") {
  CHECK(problems("full", 8, 74, ENOSPC) == "");
}

TEST_CASE("interrupted calls and short writes at some calls change nothing", "[faults]") {
  CHECK(problems("eintr", 11, 0, 0) == "");
  CHECK(problems("short", 13, 0, 0) == "");
}

TEST_CASE("a rename whose answer is lost is a rename", "[faults]") {
  const TempDir dir;
  const SaverOutcome outcome = run_saver({.folder = dir.path(), .count = 3, .fault_kind = "lost"});
  CAPTURE(outcome.run.errors);
  CHECK(outcome.run.code == 0);
  CHECK(problem_after_fault(dir.path(), 3) == "");
}

TEST_CASE("a process that is killed at some calls loses nothing", "[faults]") {
  CHECK(problems("kill", 9, 137, 0) == "");
}

TEST_CASE("a disk error at every call ends the program cleanly and loses nothing",
          "[.][faults_long]") {
  CHECK(problems("eio", 1, 74, EIO) == "");
  CHECK(problems("enospc", 1, 74, ENOSPC) == "");
}

TEST_CASE("a disk that is full from any call on loses nothing", "[.][faults_long]") {
  CHECK(problems("full", 1, 74, ENOSPC) == "");
}

TEST_CASE("interrupted calls and short writes at every call change nothing", "[.][faults_long]") {
  CHECK(problems("eintr", 1, 0, 0) == "");
  CHECK(problems("short", 1, 0, 0) == "");
}

TEST_CASE("a process that is killed at every call loses nothing", "[.][faults_long]") {
  CHECK(problems("kill", 1, 137, 0) == "");
}

}  // namespace shale::test

#include "shale/models/tools/supervision/restart_policy.h"

#include "shale/test/support/catch.h"

namespace shale::models {

TEST_CASE("only failures that another start may not meet are restarted") {
  CHECK(ending_of(0) == Ending::kDone);
  CHECK(ending_of(75) == Ending::kPreempted);
  for (const int code : {1, 69, 70, 76, 134, 135, 136, 137, 139}) {
    CAPTURE(code);
    CHECK(ending_of(code) == Ending::kRestart);
  }
  for (const int code : {2, 64, 65, 66, 71, 74, 77, 127, 130, 143}) {
    CAPTURE(code);
    CHECK(ending_of(code) == Ending::kHopeless);
  }
}

TEST_CASE("restarts without progress are few and ever later") {
  RestartPolicy policy({.max_restarts = 3, .first_delay_s = 1, .longest_delay_s = 3});
  CHECK(policy.failed_at(-1).delay_s == 1);
  CHECK(policy.failed_at(-1).delay_s == 2);
  CHECK(policy.failed_at(-1).delay_s == 3);
  const auto last = policy.failed_at(-1);
  CHECK_FALSE(last.restart);
  CHECK(last.without_progress == 3);
}

TEST_CASE("a run that gets further is restarted for ever") {
  RestartPolicy policy({.max_restarts = 1});
  for (int64_t step = 0; step < 100; step += 10) {
    const auto decision = policy.failed_at(step);
    CHECK(decision.restart);
    CHECK(decision.without_progress == 1);
  }
  // Reaching a step again is no progress.
  CHECK_FALSE(policy.failed_at(90).restart);
  CHECK_FALSE(RestartPolicy({.max_restarts = 0}).failed_at(5).restart);
}

}  // namespace shale::models

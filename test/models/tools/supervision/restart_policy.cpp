#include "shale/models/tools/supervision/restart_policy.h"

#include "shale/test/support/catch.h"

namespace shale::models {

TEST_CASE("only failures that another start may not meet are restarted") {
  CHECK(ending_of(0) == Ending::kDone);
  CHECK(ending_of(75) == Ending::kPreempted);
  // MPICH and Intel MPI exit with the number of the signal itself: 2 to 31, or 34 to 63.
  for (const int code : {1, 6, 7, 8, 9, 11, 15, 63, 69, 70, 76, 78, 130, 134, 136, 137, 139, 143}) {
    CAPTURE(code);
    CHECK(ending_of(code) == Ending::kRestart);
  }
  for (const int code : {64, 65, 66, 71, 126, 127}) {
    CAPTURE(code);
    CHECK(ending_of(code) == Ending::kHopeless);
  }
  CHECK(ending_of(74) == Ending::kDisk);
  CHECK(ending_of(77) == Ending::kNonFinite);
}

TEST_CASE("codes are described") {
  CHECK(describe_exit(137) == "killed by signal 9");
  CHECK(describe_exit(9) == "exit code 9 (signal 9 under MPICH)");
  CHECK(describe_exit(1) == "exit code 1");
  CHECK(describe_exit(78) == "exit code 78");
  CHECK(is_own_code(0));
  CHECK(is_own_code(64));
  CHECK(is_own_code(77));
  CHECK_FALSE(is_own_code(9));
  CHECK_FALSE(is_own_code(137));
}

TEST_CASE("restarts without progress are few and ever later") {
  RestartPolicy policy({.max_restarts = 3, .first_delay_s = 1, .longest_delay_s = 3});
  CHECK(policy.failed({}).delay_s == 1);
  CHECK(policy.failed({}).delay_s == 2);
  CHECK(policy.failed({}).delay_s == 3);
  const auto last = policy.failed({});
  CHECK_FALSE(last.restart);
  CHECK(last.without_progress == 3);
}

TEST_CASE("a run that gets further is restarted for ever") {
  RestartPolicy policy({.max_restarts = 1});
  for (int64_t step = 0; step < 100; step += 10) {
    const auto decision = policy.failed({.saved_step = step});
    CHECK(decision.restart);
    CHECK(decision.without_progress == 1);
  }
  // A run that reaches the same step again has made no progress.
  CHECK_FALSE(policy.failed({.saved_step = 90}).restart);
  CHECK_FALSE(RestartPolicy({.max_restarts = 0}).failed({.saved_step = 5}).restart);
}

TEST_CASE("a disk error is retried for half an hour") {
  RestartPolicy policy({});
  const RestartPolicy::Failure full{.ending = Ending::kDisk, .saved_step = 10, .step = 12};
  double waited_s = 0, longest_s = 0;
  int64_t restarts = 0;
  for (auto decision = policy.failed(full); decision.restart; decision = policy.failed(full)) {
    waited_s += decision.delay_s;
    longest_s = decision.delay_s;
    ++restarts;
  }
  CHECK(restarts == 12);
  CHECK(longest_s == 600);
  CHECK(waited_s > 1800);
}

TEST_CASE("a non-finite value is restarted once at a step") {
  RestartPolicy policy({});
  const auto at = [](int64_t step) {
    return RestartPolicy::Failure{.ending = Ending::kNonFinite, .saved_step = 20, .step = step};
  };
  CHECK(policy.failed(at(30)).restart);
  CHECK_FALSE(policy.failed(at(30)).restart);
  // A restart is useless only if the same step is not finite twice in a row. Here another step
  // follows, then another kind of failure.
  RestartPolicy other({});
  CHECK(other.failed(at(30)).restart);
  CHECK(other.failed(at(31)).restart);
  CHECK(other.failed({.saved_step = 20}).restart);
}

}  // namespace shale::models

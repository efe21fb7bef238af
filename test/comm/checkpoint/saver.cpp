#include "shale/comm/checkpoint/saver.h"

#include <optional>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/comm/groups/group_simulated.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::comm {

using test::contains;
using test::message_of;

TEST_CASE("a state that no checkpoint can hold is refused before a step is done", "[io]") {
  Context context{{}};
  const test::TempDir dir;
  // It is an error if two ranks contribute the same part.
  SimulatedGroup one(0, 1, context.backend()), two(0, 2, context.backend());
  const auto check = [&](ProcessGroup& group, const std::string& name) {
    CheckpointSaver(group, context, dir.path(), {})
        .check({{.name = name,
                 .shape = {4},
                 .values = from_host<float>(context, std::vector<float>{1, 2, 3, 4}, {4})}});
  };
  CHECK_NOTHROW(check(one, "w"));
  const std::string twice = message_of<ConfigError>([&] { check(two, "w"); });
  CHECK(contains(twice, "cannot save the state of 2 ranks"));
  CHECK(contains(twice, "appears twice"));
  const std::string long_name = message_of<ConfigError>([&] { check(one, std::string(600, 'w')); });
  CHECK(contains(long_name, "cannot save the state of 1 rank"));
  CHECK(contains(long_name, "has a name of "));
}

TEST_CASE("what ranks said before a save does not end it", "[io]") {
  Context context{{}};
  SimulatedGroup group(0, 1, context.backend());
  const test::TempDir dir;
  CheckpointSaver saver(group, context, dir.path(), {});
  const std::vector<StatePart> share = {
      {.name = "w",
       .shape = {4},
       .values = from_host<float>(context, std::vector<float>{1, 2, 3, 4}, {4})}};
  for (int64_t step = 1; step <= 3; ++step) {
    const SaveProgress before = saver.progress();
    saver.save({.step = step}, share);
    CHECK_FALSE(saver.advance(before).has_value());
    CHECK(saver.in_flight());
    std::optional<int64_t> committed;
    while (!committed) committed = saver.advance(saver.progress());
    CHECK(committed == step);
    CHECK_FALSE(saver.in_flight());
  }
}

}  // namespace shale::comm

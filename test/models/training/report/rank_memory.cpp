#include "shale/models/training/report/rank_memory.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

RankMemory some_memory(int rank) {
  RankMemory memory{.rank = rank, .threads = 3};
  memory.device.by_tag = {1, 2, 3, 4, 5, 6, int64_t{1} << 45};
  memory.device.allocated = 21 + (int64_t{1} << 45);
  memory.device.reserved = int64_t{1} << 46;
  return memory;
}

}  // namespace

TEST_CASE("what a run writes of its ranks' memory is read as it was") {
  const test::TempDir run;
  RankMemory offloads = some_memory(1);
  offloads.host = offloads.device;
  offloads.host->reserved = 7;
  run.write(kMemoryFile, to_json(some_memory(0)) + "\n" + to_json(offloads) + "\n");
  CHECK(read_memory(run.path()) == std::vector<RankMemory>{some_memory(0), offloads});
}

TEST_CASE("memory of ranks that is malformed is named by its line") {
  const test::TempDir run;
  CHECK_THROWS_AS(read_memory(run.path()), MissingInputError);
  run.write(kMemoryFile, to_json(some_memory(0)) + "\n{\"rank\": 1, \"threads\": 1}\n");
  const auto message = [&] {
    return test::message_of<DataError>([&] { read_memory(run.path()); });
  };
  CHECK(test::contains(message(), "memory.jsonl:2"));
  run.write(kMemoryFile, to_json(some_memory(1)) + "\n");
  CHECK(test::contains(message(), "expected 0"));
}

}  // namespace shale::models

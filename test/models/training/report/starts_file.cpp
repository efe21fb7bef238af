#include "shale/models/training/report/starts_file.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

TEST_CASE("starts of a run are added, and read in their order", "[starts_file]") {
  const test::TempDir dir;
  const std::string path = dir.file("starts.jsonl");
  CHECK(read_starts(path).empty());
  const RunStart first{.step = 0, .ranks = 4, .time = "2026-11-23T00:24:55.123Z"};
  const RunStart second{.step = 20,
                        .ranks = 2,
                        .time = "2026-11-23T01:00:00.000Z",
                        .device = "cuda 9.0",
                        .parameters = int64_t{1} << 40};
  add_start(path, first);
  add_start(path, second);
  CHECK(read_starts(path) == std::vector<RunStart>{first, second});
  // Earlier versions wrote neither device nor parameters.
  dir.write("older.jsonl", "{\"step\": 0, \"ranks\": 2, \"time\": \"T\"}\n");
  CHECK(read_starts(dir.file("older.jsonl")) ==
        std::vector<RunStart>{{.step = 0, .ranks = 2, .time = "T"}});
}

TEST_CASE("a line that is no start is named", "[starts_file]") {
  const test::TempDir dir;
  dir.write("starts.jsonl", "{\"step\": 0}\n");
  const auto read = [&] { read_starts(dir.path() / "starts.jsonl"); };
  CHECK(test::contains(test::message_of<DataError>(read), "starts.jsonl:1"));
}

}  // namespace shale::models

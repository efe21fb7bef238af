#include "shale/models/training/report/run_status.h"

#include <unistd.h>

#include <filesystem>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {

TEST_CASE("status.json is read as it was written") {
  const TempDir dir;
  const models::RunStatus cases[] = {
      {},
      {.step = 7, .checkpoint_step = 5, .checkpoint = "out/checkpoints/step_00000005"},
      {.state = models::RunState::kSaved, .step = 9, .checkpoint_step = 9, .exit_code = 75},
      {.state = models::RunState::kDone, .step = 10, .exit_code = 0},
      {.state = models::RunState::kFailed, .exit_code = 77, .message = "a \"quote\"\nand a line"},
  };
  for (const models::RunStatus& status : cases) {
    models::write_run_status(dir.path(), status);
    CHECK(models::read_run_status(dir.path()) == status);
  }
}

TEST_CASE("where there is no room for another file, status.json is written in place") {
  const test::TempDir dir;
  models::RunStatus status{.message = std::string(500, 'x')};
  models::write_run_status(dir.path(), status);
  // Occupies all names of temporary files.
  for (int i = 0; i < 1000; ++i) dir.write(cat(".status.json.tmp-", getpid(), "-", i), "");
  status = {.state = models::RunState::kFailed, .step = 7, .exit_code = 74, .message = "full"};
  models::write_run_status(dir.path(), status);
  CHECK(models::read_run_status(dir.path()) == status);
  // If no temporary file can be made, an existing status.json is overwritten in place. That fails
  // if it does not exist. It also fails for a symbolic link, which is not followed.
  std::filesystem::remove(dir.file("status.json"));
  CHECK_THROWS_AS(models::write_run_status(dir.path(), status), DiskError);
  std::filesystem::create_symlink(dir.write("other", "text"), dir.file("status.json"));
  CHECK_THROWS_AS(models::write_run_status(dir.path(), status), DiskError);
  CHECK(test::read_file(dir.file("other")) == "text");
}

TEST_CASE("a status.json that is missing or malformed says so") {
  const TempDir dir;
  CHECK_THROWS_AS(models::read_run_status(dir.path()), MissingInputError);
  dir.write("status.json", "{\"state\": \"asleep\", \"step\": 1, \"checkpoint\": \"\"}");
  const std::string message = message_of<DataError>([&] { models::read_run_status(dir.path()); });
  CHECK(contains(message, "status.json"));
  CHECK(contains(message, "asleep"));
}

}  // namespace shale::test

#include "shale/models/plan/memory_check.h"

#include <optional>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/models/language/task.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/ranks/harness.h"

namespace shale::models {
namespace {

// Checks a run with this micro-batch on all ranks. Returns the error message, or "" if the run
// fits.
std::string problem(const char* micro_batch, const std::optional<GpuMemory>& gpu,
                    std::vector<const char*> flags = {}) {
  const auto group = test::world().group();
  TrainConfig config;
  ConfigSpec spec("train_lm", "of a test");
  describe(spec, config, /*needs_data=*/false);
  flags.insert(flags.begin(), {"train_lm", "--model", "nano", "--device", "cpu", "--threads", "1",
                               "--micro-batch", micro_batch});
  parse_config(spec, static_cast<int>(flags.size()), flags.data());
  resolve(config, group->size());
  const LanguageTask task(config);
  const int ranks = group->size();
  const PlannedRun run{.run = config.run,
                       .task = task,
                       .resolve = [ranks](RunConfig& of) { resolve(of, ranks); },
                       .rank = group->rank(),
                       .ranks = ranks};
  std::string message;
  try {
    check_memory(run, *group, gpu);
  } catch (const OutOfMemoryError& error) {
    message = error.what();
  }
  const std::vector<std::string> all = group->all_gather_bytes(message, "messages of a test");
  for (const std::string& other : all) CHECK(other == message);
  return message;
}

std::string ranks_text(int ranks) {
  return ranks == 1 ? "(1 rank)" : "(" + std::to_string(ranks) + " ranks)";
}

}  // namespace

TEST_CASE("a run that its hosts cannot hold is refused on all ranks, with options that fit",
          "[memory_check]") {
  const int ranks = test::world().size();
  CHECK(problem("2", {}).empty());
  const std::string text = problem("4194304", {});
  CHECK(test::contains(text, "memory: this run needs "));
  CHECK(test::contains(text, " on " + host_name() + " " + ranks_text(ranks) + ", found "));
  CHECK(test::contains(text, " free; each of these options is enough:\n  --micro-batch "));
  // This micro-batch needs more than the address space, so even its plan cannot be made.
  CHECK(test::contains(problem("1073741824", {}), "needs "));
  // --device-memory is its own limit for the device. The rest of the run's memory is still checked.
  CHECK(problem("65536", {}, {"--device-memory", "64MiB"}).empty());
  CHECK(test::contains(problem("4194304", {}, {"--device-memory", "64MiB"}), "needs "));
}

TEST_CASE("ranks that share a GPU need its memory together", "[memory_check]") {
  const int ranks = test::world().size(), rank = test::world().rank();
  constexpr int64_t kFree = int64_t{96} << 20;  // a rank needs 50 to 60 MiB
  const std::string own = "GPU " + std::to_string(rank);
  CHECK(problem("4", GpuMemory{own, kFree}).empty());
  const std::string shared = problem("4", GpuMemory{"GPU 0", kFree});
  if (ranks == 1) {
    CHECK(shared.empty());
  } else {
    CHECK(test::contains(
        shared, "on GPU 0 of " + host_name() + " " + ranks_text(ranks) + ", found 96.0 MiB free"));
  }
  const std::string small = problem("4", GpuMemory{own, kFree / 3});
  CHECK(test::contains(small, "of " + host_name() + " (1 rank), found 32.0 MiB free; "));
}

}  // namespace shale::models

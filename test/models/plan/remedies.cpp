#include "shale/models/plan/remedies.h"

#include <ctime>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/language/task.h"
#include "shale/models/plan/plan_rank.h"
#include "shale/runtime/tensor/out_of_memory.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

constexpr int64_t kMiB = 1 << 20;

TrainConfig parsed(const std::vector<std::string>& flags, int ranks) {
  TrainConfig config;
  ConfigSpec spec("train_lm", "of a test");
  describe(spec, config, /*needs_data=*/false);
  std::vector<const char*> words = {"train_lm", "--threads", "1", "--device", "cpu"};
  for (const std::string& flag : flags) words.push_back(flag.c_str());
  parse_config(spec, static_cast<int>(words.size()), words.data());
  resolve(config, ranks);
  return config;
}

// Plans for rank 0 of a run with these flags.
struct Planned {
  TrainConfig config;
  LanguageTask task;
  PlannedRun run;

  Planned(const std::vector<std::string>& flags, int ranks)
      : config(parsed(flags, ranks)),
        task(config),
        run{.run = config.run,
            .task = task,
            .resolve =
                [all = config, ranks](RunConfig& of) {
                  TrainConfig changed{all.language, of};
                  resolve(changed, ranks);
                  of = changed.run;
                },
            .ranks = ranks} {}
};

Remedies remedies_of(const std::vector<std::string>& flags, int ranks, int64_t limit,
                     double most_seconds = 1e9, MemoryPool pool = MemoryPool::kDevice) {
  return find_remedies(Planned(flags, ranks).run, pool, limit, most_seconds);
}

std::vector<std::string> words_of(std::string text) {
  std::vector<std::string> words;
  for (size_t end = 0; !text.empty(); text.erase(0, end == text.npos ? end : end + 1)) {
    words.push_back(text.substr(0, end = text.find(' ')));
  }
  return words;
}

// Plans a rank with these flags and this memory budget, and returns its memory. Throws
// OutOfMemoryError if the budget is too small.
int64_t bytes_within(int64_t budget, std::vector<std::string> flags, const std::string& more,
                     int ranks) {
  for (const std::string& word : words_of(more)) flags.push_back(word);
  TrainConfig config = parsed(flags, ranks);
  config.run.device_memory = budget;
  LanguageTask task(config);
  return plan_rank(config.run, task, 0, ranks).memory.device.reserved;
}

}  // namespace

TEST_CASE("remedies are enough, and what they say they hold") {
  const std::vector<std::string> flags = {"--model", "nano", "--micro-batch", "8"};
  const int64_t all = bytes_within(0, flags, "", 2);
  const int64_t limit = all * 7 / 10;
  REQUIRE_THROWS_AS(bytes_within(limit, flags, "", 2), DeviceOutOfMemory);
  const Remedies found = remedies_of(flags, 2, limit);
  CHECK(found.planned_bytes == all);
  CHECK_FALSE(found.fits);
  REQUIRE(found.alternatives.size() == 3);
  for (const Remedy& remedy : found.alternatives) {
    CAPTURE(remedy.flags);
    CHECK(bytes_within(limit, flags, remedy.flags, 2) == remedy.bytes);
  }
  const std::string text = describe(found, limit);
  CHECK(test::contains(text, "each of these options is enough"));
  CHECK(test::contains(text, found.alternatives.back().flags));
}

TEST_CASE("where nothing is enough by itself remedies are one together, or none") {
  const std::vector<std::string> flags = {"--model", "nano", "--micro-batch", "4"};
  const int64_t all = bytes_within(0, flags, "", 1);
  int64_t limit = all;
  Remedies found;
  do {  // reduces the budget until no option suffices
    limit -= kMiB;
    found = remedies_of(flags, 1, limit);
  } while (found.fits || !found.alternatives.empty());
  REQUIRE(found.together_fits);
  CHECK(test::contains(found.together.flags, "--recompute full --micro-batch 1"));
  CHECK(bytes_within(limit, flags, found.together.flags, 1) == found.together.bytes);
  CHECK(test::contains(describe(found, limit), "these options together are enough"));

  found = remedies_of(flags, 1, 3 * kMiB);
  CHECK_FALSE(found.together_fits);
  CHECK(found.together.bytes > 3 * kMiB);
  CHECK(test::contains(describe(found, 3 * kMiB), "not enough even with: --recompute full"));
}

TEST_CASE("remedies that ran out of time say that options were not planned") {
  const std::vector<std::string> flags = {"--model", "nano", "--micro-batch", "4"};
  const Remedies late = remedies_of(flags, 1, 3 * kMiB, /*most_seconds=*/0);
  CHECK(late.is_cut_short);
  CHECK(test::contains(describe(late, 3 * kMiB), "not all options were planned"));
  const Remedies all = remedies_of(flags, 1, 3 * kMiB);
  CHECK_FALSE(all.is_cut_short);
  CHECK_FALSE(test::contains(describe(all, 3 * kMiB), "not all options"));
}

TEST_CASE("remedies together are the strongest that go with each other and the options given") {
  // --check-replicas needs replicas of parameters, and --zero 3 leaves none.
  const std::vector<std::string> flags = {"--model", "nano", "--check-replicas", "1"};
  const Remedies found = remedies_of(flags, 2, 3 * kMiB);
  CHECK(found.alternatives.empty());
  CHECK_FALSE(found.together_fits);
  CHECK(test::contains(found.together.flags, "--zero 2 --no-overlap"));
  CHECK_FALSE(test::contains(found.together.flags, "--zero 3"));
  CHECK(bytes_within(0, flags, found.together.flags, 2) == found.together.bytes);
}

TEST_CASE("remedies know what is no part of the training") {
  const Remedies found = remedies_of({"--model", "nano"}, 1, 4096 * kMiB);
  CHECK(found.fits);
  CHECK(found.alternatives.empty());
  CHECK(test::contains(describe(found, 4096 * kMiB), "something else used the rest"));
}

TEST_CASE("a far smaller micro-batch is found without many plans, and uses most of the limit") {
  const std::vector<std::string> flags = {"--model", "nano", "--micro-batch", "100000"};
  const int64_t limit = 512 * kMiB;
  for (const MemoryPool pool : {MemoryPool::kDevice, MemoryPool::kHost}) {
    const Remedies found = remedies_of(flags, 1, limit, 1e9, pool);
    CHECK(found.planned_bytes > 100'000 * kMiB);
    REQUIRE(found.alternatives.size() == 1);
    const Remedy& smaller = found.alternatives.front();
    CHECK(test::contains(smaller.flags, "--micro-batch "));
    CHECK(test::contains(smaller.flags, " --global-batch 100000"));
    CHECK(smaller.bytes <= limit);
    CHECK(smaller.bytes > limit / 4);
  }
}

TEST_CASE("the plan of a run of 32 layers takes less than a second") {
  const Planned planned({"--model", "llama3.1-8b", "--seq-len", "4096"}, 1);
  const std::clock_t start = std::clock();
  CHECK(memory_needs(planned.run).device > int64_t{100} << 30);
  CHECK(std::clock() - start < CLOCKS_PER_SEC);
}

TEST_CASE("what a large micro-batch needs is extrapolated") {
  const auto needs = [](const char* samples) {
    return memory_needs(Planned({"--model", "nano", "--micro-batch", samples}, 1).run);
  };
  const MemoryNeeds planned = needs("1024"), more = needs("4096");
  CHECK(more.device ==
        Approx(bytes_within(0, {"--model", "nano", "--micro-batch", "4096"}, "", 1)).epsilon(0.01));
  // Three batches of 1,024 sequences of 256 tokens, with 4-byte inputs and targets. The
  // checkpoint's memory does not change.
  const int64_t batches = 3 * 1024 * 256 * 8;
  CHECK((more.host - more.device) - (planned.host - planned.device) == 3 * batches);
  CHECK(needs("1073741824").device == int64_t{1} << 46);
}

TEST_CASE("host memory counts batches, checkpoints and offloaded states") {
  const std::vector<std::string> flags = {"--model", "nano", "--micro-batch", "64"};
  const auto needs = [&](std::vector<std::string> more) {
    more.insert(more.begin(), flags.begin(), flags.end());
    return memory_needs(Planned(more, 1).run);
  };
  const int64_t batch = 64 * 256 * 2 * 4, state = 3 * 4 * 858'880;
  const MemoryNeeds own = needs({"--workers", "2", "--no-save"});
  CHECK(own.host == own.device + 4 * batch);
  CHECK(needs({"--workers", "2"}).host == own.host + state);
  const MemoryNeeds offloaded = needs({"--offload", "optimizer", "--no-save"});
  CHECK(offloaded.host > offloaded.device + state);
  CHECK(offloaded.device < own.device);
  // A folder on a disk takes no host memory.
  const MemoryNeeds on_disk = needs({"--zero", "3", "--offload", "nvme:/tmp", "--no-save"});
  CHECK(on_disk.host == on_disk.device + 3 * batch);
}

}  // namespace shale::models

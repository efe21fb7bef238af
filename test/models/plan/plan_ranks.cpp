// Compares planned memory with that of an actual run on the ranks of the test.
#include <sstream>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/base/log.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/models/plan/plan_rank.h"
#include "shale/models/training/report/rank_memory.h"
#include "shale/models/training/trainer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {
namespace {

// Model sizes with tensors smaller and larger than a small memory segment.
constexpr const char* kSmall = "--layers 2 --width 32 --heads 2 --seq-len 32 --micro-batch 2 ";
constexpr const char* kLarge = "--layers 3 --width 192 --heads 3 --seq-len 128 --micro-batch 4 ";

struct Case {
  int ranks;
  const char* sizes;
  const char* flags;
};

constexpr Case kCases[] = {
    {1, kSmall, "--model nano"},
    {1, kLarge, "--model nano"},
    {1, kSmall, "--model nano --global-batch 6 --dropout 0.1"},
    {1, kLarge, "--model nano --dtype bf16"},
    {1, kSmall, "--model nano --dtype fp16 --clip 0"},
    {1, kLarge, "--model nano --recompute selective"},
    {1, kLarge, "--model nano --recompute full --global-batch 8"},
    {1, kLarge, "--model nano --loss-chunk 64"},
    {1, kLarge, "--model nano --offload optimizer --dtype bf16"},
    {1, kLarge, "--model nano --offload-activations"},
    {1, kLarge, "--model nano --zero 3 --offload params --offload-ratio 0.5"},
    {1, kSmall, "--model nano --eval-every 2 --ema 0.9"},
    {1, kSmall, "--model nano --reproducible --global-batch 4"},
    {1, kSmall, "--model nano --optimizer adafactor"},
    {1, kSmall, "--model nano --optimizer muon"},
    {1, kSmall, "--model nano --optimizer adamw-8bit --skip-outliers 4"},
    {1, kLarge, "--model llama-nano --kv-heads 1"},
    {1, kLarge,
     "--model llama-nano --kv-heads 3 --dtype bf16 --recompute selective --loss-chunk 100"},
    {2, kSmall, "--model nano"},
    {2, kLarge, "--model nano --zero 1 --grad-dtype bf16 --dtype bf16"},
    {2, kLarge, "--model nano --zero 2 --no-overlap --global-batch 16"},
    {2, kLarge, "--model nano --zero 3 --no-overlap"},
    // With overlap, it is not fixed when a gradient is freed: after its reduction. The plan is then
    // an upper bound.
    {2, kLarge, "--model nano --zero 2"},
    {2, kLarge, "--model nano --zero 3 --dtype bf16 --recompute full"},
    {2, kLarge, "--model nano --zero 3 --no-overlap --recompute full"},
    {2, kLarge, "--model nano --zero 2 --no-overlap --offload optimizer"},
    {2, kLarge, "--model nano --zero 3 --no-overlap --offload params --offload-activations"},
    {2, kSmall, "--model nano --zero 2 --no-overlap --optimizer muon --global-batch 8"},
    {2, kLarge, "--model llama-nano --kv-heads 1 --zero 3 --no-overlap --eval-every 1"},
    {2, kLarge, "--model nano --pipeline 2 --global-batch 16"},
    {2, kLarge,
     "--model llama-nano --kv-heads 1 --pipeline 2 --pipeline-chunks 2 --global-batch 8"},
    {2, kSmall, "--model nano --pipeline 2 --pipeline-schedule zbv --zero 1 --global-batch 8"},
    {2, kSmall, "--model nano --tensor 2 --zero 1"},
    {2, kSmall, "--model nano --tensor 2 --optimizer adafactor"},
    {2, kSmall, "--model llama-nano --context 2 --recompute full"},
    {2, kLarge, "--model nano --context 2 --context-kind ring --dtype bf16"},
    {2, kSmall, "--model llama-nano --context 2 --context-kind ulysses --recompute full"},
    {3, kSmall, "--model nano --zero 3 --no-overlap --dtype bf16"},
    {4, kSmall, "--model nano --zero 1 --loss-chunk 7"},
    {4, kLarge, "--model nano --zero 3 --no-overlap --shard-ranks 2"},
    {4, kSmall, "--model nano --zero 3 --no-overlap --reshard-ranks 2 --dtype bf16"},
    {4, kLarge,
     "--model llama-nano --kv-heads 3 --zero 2 --no-overlap --global-batch 32 --recompute "
     "selective"},
    {4, kSmall, "--model nano --pipeline 2 --zero 1 --global-batch 8 --offload optimizer"},
    {4, kSmall, "--model nano --layers 4 --pipeline 4 --pipeline-schedule zb-h1 --global-batch 8"},
    {4, kSmall, "--model llama-nano --tensor 2 --pipeline 2 --global-batch 4"},
    {4, kLarge, "--model llama-nano --kv-heads 1 --context 4 --context-kind ring --zero 1"},
};

// A run in `folder`, where rank 0 has written the training text.
struct Run {
  TrainConfig config;
  ConfigSpec spec{"train_lm", "of a test"};

  Run(const std::string& folder, const Case& of) {
    describe(spec, config);
    const std::string common = cat("train_lm --data ", folder, "/text.txt --out ", folder,
                                   "/out --steps 4 --no-save --threads ");
    std::istringstream words(
        // The last of repeated flags counts.
        cat(common, of.ranks == 1 ? "2 " : "1 ", of.sizes, of.flags));
    std::vector<std::string> arguments;
    for (std::string word; words >> word;) arguments.push_back(word);
    std::vector<const char*> argv;
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    parse_config(spec, static_cast<int>(argv.size()), argv.data());
    resolve(config, of.ranks);
  }
};

}  // namespace

TEST_CASE("the memory of a planned rank is that of the run, to the byte", "[plan]") {
  set_process_log({.quiet = true});
  const auto all = test::world().group();
  std::string text;
  for (int line = 0; line < 2000; ++line) text += cat("line ", line, " of a text\n");
  int planned = 0;
  for (const Case& of : kCases) {
    if (of.ranks != all->size()) continue;
    const test::TempDir run_dir;
    const std::string folder = all->broadcast_bytes(run_dir.path().string(), 0);
    if (all->rank() == 0) run_dir.write("text.txt", text);
    all->barrier();
    Run run(folder, of);
    LanguageTask task(run.config);
    Trainer(run.config.run, run.spec, task, test::world()).run();
    all->barrier();
    // Each rank makes a plan of its own, with a task whose model is not sharded yet.
    LanguageTask planned_task(run.config);
    CAPTURE(of.sizes, of.flags);
    const std::vector<RankMemory> found = read_memory(cat(folder, "/out"));
    REQUIRE(int(found.size()) == all->size());
    const RankMemory& mine = found[size_t(all->rank())];
    const RankMemory want =
        plan_rank(run.config.run, planned_task, all->rank(), all->size()).memory;
    if (memory_depends_on_time(run.config.run, all->size())) {
      CHECK(mine.device.allocated <= want.device.allocated);
      CHECK(mine.device.reserved <= want.device.reserved);
    } else {
      CHECK(to_json(mine) == to_json(want));
    }
    ++planned;
    all->barrier();
  }
  if (planned == 0) WARN("skipped: no run is of " << all->size() << " ranks");
  set_process_log({});
}

}  // namespace shale::models

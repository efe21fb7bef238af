#include "shale/models/plan/layouts.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "shale/base/config.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

std::vector<PlannedLayout> layouts_of(int ranks) {
  TrainConfig config;
  config.language.layers = 3;
  config.run.threads = 1;
  config.run.micro_batch = 2;
  config.run.global_batch = 16;
  resolve(config, ranks);
  return plan_layouts(
      config.run, [&] { return std::make_unique<LanguageTask>(config); }, ranks);
}

const PlannedLayout* find(const std::vector<PlannedLayout>& layouts, std::string_view flags) {
  const auto is_it = [&](const PlannedLayout& layout) { return layout.flags == flags; };
  const auto found = std::find_if(layouts.begin(), layouts.end(), is_it);
  return found == layouts.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("layouts are what train_lm takes, the one that holds most first", "[plan]") {
  const std::vector<PlannedLayout> layouts = layouts_of(4);
  const auto holds_more = [](const PlannedLayout& a, const PlannedLayout& b) {
    return a.device.reserved > b.device.reserved;
  };
  CHECK(std::is_sorted(layouts.begin(), layouts.end(), holds_more));
  for (const char* flags :
       {"", "--zero 3 --recompute full --offload params", "--zero 1 --pipeline 4",
        "--pipeline 2 --recompute selective --offload optimizer"}) {
    CAPTURE(flags);
    CHECK(find(layouts, flags) != nullptr);
  }
  for (const char* flags : {"--zero 2 --pipeline 2", "--offload params", "--pipeline 8"}) {
    CAPTURE(flags);
    CHECK(find(layouts, flags) == nullptr);
  }
}

TEST_CASE("what is shared, computed again or offloaded is not needed on the device", "[plan]") {
  const std::vector<PlannedLayout> layouts = layouts_of(4);
  const auto in_use = [&](const char* flags) {
    const PlannedLayout* layout = find(layouts, flags);
    REQUIRE(layout != nullptr);
    return layout->device.allocated;
  };
  CHECK(in_use("--zero 1") < in_use(""));
  CHECK(in_use("--zero 2") <= in_use("--zero 1"));
  CHECK(in_use("--zero 3") < in_use("--zero 2"));
  CHECK(in_use("--recompute full") < in_use("--recompute selective"));
  CHECK(in_use("--recompute selective") < in_use(""));
  CHECK(in_use("--offload optimizer") < in_use(""));
  CHECK(find(layouts, "--offload optimizer")->host_bytes > 0);
  CHECK(find(layouts, "")->host_bytes == 0);
}

TEST_CASE("stages of a pipeline have a first rank each", "[plan]") {
  TrainConfig config;
  config.run.pipeline = 4;
  CHECK(first_ranks_of_stages(config.run, 8) == std::vector<int>{0, 2, 4, 6});
  config.run.pipeline = 1;
  CHECK(first_ranks_of_stages(config.run, 8) == std::vector<int>{0});
}

}  // namespace shale::models

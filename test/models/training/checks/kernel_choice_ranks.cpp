#include "shale/models/training/checks/kernel_choice.h"

#include <cstdlib>

#include "shale/kernels/slots.h"
#include "shale/models/training/checks/health_check.h"
#include "shale/runtime/kernel_check/cache.h"
#include "shale/runtime/kernel_check/kernel_parts.h"
#include "shale/runtime/tensor/tensor.h"
#include "shale/test/support/ranks/harness.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {

TEST_CASE("all ranks leave out the kernels that are wrong on any rank's GPU") {
  const TempDir dir;  // each rank has its own folder, as if it were on its own host
  setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  setenv("SHALE_KERNEL_CHECK", "on", 1);
  Context context({.device = {.type = DeviceType::kEmu, .arch = 90}});
  const auto group = world().group({.name = "gpus", .timeout_s = 60});
  const bool first = group->rank() == 0;
  kernel_check::store_check(
      {.device = {.gpu = "emu:90", .driver = "emulator", .build = models::build_id()},
       .report = {.left_out = {{first ? "mul/all" : "attention_fwd/hopper", "wrong: a test"}},
                  .cases = 1}});
  const std::vector<std::string> left_out = models::choose_kernels(context, *group, 60);
  CHECK(left_out == (group->size() == 1
                         ? std::vector<std::string>{"mul/all"}
                         : std::vector<std::string>{"attention_fwd/hopper", "mul/all"}));
  const Tensor one = full(context, {1}, DType::kF32, 1);
  const View view = one;
  CHECK_THROWS_AS(kernels::mul(context.exec(), {.a = view, .b = view, .y = view}),
                  UnavailableError);
  const auto restore = [&] {
    for (const char* slot : {"mul", "attention_fwd"}) {
      kernel_check::leave_out(context.device(), slot, 0);
    }
  };
  restore();
  models::use_stored_check(context.device());  // uses the check that this host has stored
  if (first) {
    CHECK_THROWS_AS(kernels::mul(context.exec(), {.a = view, .b = view, .y = view}),
                    UnavailableError);
  } else {
    CHECK_NOTHROW(kernels::mul(context.exec(), {.a = view, .b = view, .y = view}));
  }
  context.synchronize();
  restore();

  // A stored check that ran out of time is made again. Here the new check has no time for any case,
  // so it leaves out what the stored check left out.
  const kernel_check::StoredCheck incomplete = {
      .device = {.gpu = "emu:90", .driver = "emulator", .build = models::build_id()},
      .report = {.left_out = {{"mul/all", "wrong: a test"}}, .cases = 1, .not_run = 3}};
  kernel_check::store_check(incomplete);
  CHECK(models::choose_kernels(context, *group, /*timeout_s=*/1e-9) ==
        std::vector<std::string>{"mul/all"});
  if (first) CHECK(kernel_check::load_check(incomplete.device)->report.not_run > 3);
  restore();

  setenv("SHALE_KERNEL_CHECK", "sometimes", 1);
  CHECK_THROWS_AS(models::choose_kernels(context, *group, 60), ConfigError);
  unsetenv("SHALE_KERNEL_CHECK");
  // Without a request, emulated GPUs are not checked.
  CHECK(models::choose_kernels(context, *group, 60).empty());
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace shale::test

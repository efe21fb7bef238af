#include "shale/runtime/kernel_check/cache.h"

#include <cstdlib>
#include <filesystem>

#include "shale/base/host_name.h"
#include "shale/base/text.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::kernel_check {
namespace {

const CheckedDevice kDevice = {"NVIDIA H100 80GB HBM3", "580.65.06", "a build"};

StoredCheck some_check() {
  return {.device = kDevice,
          .report = {.left_out = {{"gemm/fused", "wrong: \"here\""}},
                     .cases = 12,
                     .not_run = 3,
                     .seconds = 4.5}};
}

void equals_some(const CheckReport& report) {
  REQUIRE(report.left_out.size() == 1);
  CHECK(report.left_out[0].kernel == "gemm/fused");
  CHECK(report.left_out[0].reason == "wrong: \"here\"");
  CHECK(report.cases == 12);
  CHECK(report.not_run == 3);
  CHECK(report.seconds == 4.5);
}

}  // namespace

TEST_CASE("a stored check is read back for the same GPU model, driver and build alone") {
  const test::TempDir dir;
  setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  CHECK_FALSE(load_check(kDevice));
  CHECK(stored_checks().empty());
  store_check(some_check());
  equals_some(load_check(kDevice).value().report);
  CHECK_FALSE(load_check(kDevice)->complete());  // 3 cases did not run
  for (auto member : {&CheckedDevice::gpu, &CheckedDevice::driver, &CheckedDevice::build}) {
    CheckedDevice other = kDevice;
    other.*member += " 2";
    CHECK_FALSE(load_check(other));
  }
  const std::vector<StoredCheck> stored = stored_checks();
  REQUIRE(stored.size() == 1);
  CHECK(stored[0].device == kDevice);
  equals_some(stored[0].report);
  CHECK(stored[0].file.starts_with(
      (std::filesystem::path(check_folder()) / cat("kernels-", host_name(), "-")).string()));
}

TEST_CASE("kernels that ended a check are stored for the next one") {
  const test::TempDir dir;
  setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  StoredCheck check = some_check();
  check.failed = {{"attention_fwd", 0}, {"gemm", kernels::kFusedKernels}};
  check.finished = false;
  store_check(check);
  const StoredCheck again = load_check(kDevice).value();
  CHECK_FALSE(again.finished);
  CHECK_FALSE(again.complete());
  CHECK(again.failed == check.failed);
}

TEST_CASE("a stored check that is damaged or of another GPU is not used") {
  const test::TempDir dir;
  setenv("XDG_CACHE_HOME", dir.path().c_str(), 1);
  store_check(some_check());
  const std::string file = stored_checks().at(0).file;
  store_check({.device = {"NVIDIA L4", "580.65.06", "a build"}});
  for (const StoredCheck& one : stored_checks()) {
    if (one.device.gpu == "NVIDIA L4") std::filesystem::rename(one.file, file);
  }
  CHECK_FALSE(load_check(kDevice));  // the file has the H100's name and the L4's result
  for (const char* text : {"", "{", "{}", "{\"format\": 2}", "[]"}) {
    dir.write(std::filesystem::relative(file, dir.path()).string(), text);
    CHECK_FALSE(load_check(kDevice));
    CHECK(stored_checks().empty());
  }
  store_check(some_check());
  equals_some(load_check(kDevice).value().report);
}

TEST_CASE("without a folder for checks they are not stored") {
  setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);
  CHECK_NOTHROW(store_check(some_check()));
  CHECK_FALSE(load_check(kDevice));
  setenv("XDG_CACHE_HOME", "relative", 1);
  CHECK(check_folder().find("relative") == std::string::npos);
  unsetenv("XDG_CACHE_HOME");
}

}  // namespace shale::kernel_check

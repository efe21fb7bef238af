#include "shale/models/plan/time/kernel_times.h"

#include <array>
#include <ctime>

#include "shale/kernels/elementwise.h"
#include "shale/models/plan/time/step_clock.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

using Pass = KernelTimes::Pass;

constexpr double kMillisecond = 1e-3;

// Uses this much CPU time of the thread, however busy the machine is.
void work(double seconds) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  for (const double start = now(); now() - start < seconds;) continue;
}

// A kernel that takes a millisecond.
class Kernel {
 public:
  kernels::SlotCall call() const { return {kernels::fill, exec_, &args_, run_}; }
  int runs() const { return runs_; }

 private:
  std::array<float, 8> values_{};
  Exec exec_;
  kernels::FillArgs args_{.y = make_view(values_.data(), {8}), .value = 0};
  int runs_ = 0;
  kernels::SlotCall::Run run_ = [this](const Exec&) {
    ++runs_;
    work(kMillisecond);
  };
};

Cluster cluster_of() {
  return {.device = "core",
          .is_gpu = false,
          .memory_bandwidth = 1e9,
          .flops_bf16 = 1e9,
          .flops_fp32 = 1e9,
          .node = {.bandwidth = 1e9, .latency_s = 1e-6},
          .network = {.bandwidth = 1e9, .latency_s = 1e-6}};
}

}  // namespace

TEST_CASE("kernels are measured in their places, the first ones of each kind", "[plan]") {
  const Cluster cluster = cluster_of();
  KernelTimes times(cluster);
  times.set_measures(true);
  const Kernel kernel;
  const auto basis_of_calls = [&](int calls) {
    Basis last{};
    for (int i = 0; i < calls; ++i) last = times.of(kernel.call()).basis;
    return last;
  };
  times.set_pass(Pass::kLater);
  CHECK(basis_of_calls(20) == Basis::kExtrapolated);
  CHECK(kernel.runs() == 0);
  times.set_pass(Pass::kVisit);
  CHECK(basis_of_calls(20) == Basis::kExtrapolated);
  CHECK(kernel.runs() == 16);
  times.set_pass(Pass::kInPlace);
  CHECK(basis_of_calls(20) == Basis::kMeasured);
  CHECK(kernel.runs() == 32);
  times.set_pass(Pass::kAtOnce);
  const KernelTime found = times.of(kernel.call());
  CHECK(found.basis == Basis::kMeasured);
  CHECK(found.seconds == Approx(kMillisecond).epsilon(0.3));
  CHECK(kernel.runs() == 32);
  // Three ranks share a core, so a kernel takes three times as long.
  times.set_crowding(3);
  CHECK(times.of(kernel.call()).seconds == Approx(3 * found.seconds));
}

TEST_CASE("a kernel that no visit has seen is measured at once", "[plan]") {
  const Cluster cluster = cluster_of();
  for (const Pass pass : {Pass::kAtOnce, Pass::kInPlace}) {
    KernelTimes times(cluster);
    times.set_measures(true);
    times.set_pass(pass);
    const Kernel kernel;
    CHECK(times.of(kernel.call()).seconds == Approx(kMillisecond).epsilon(0.3));
    CHECK(kernel.runs() > 3);
  }
}

TEST_CASE("the time between kernels is the rehearsal's own", "[plan]") {
  const Cluster cluster = cluster_of();
  KernelTimes times(cluster);
  times.set_measures(true);
  StepClock clock(cluster, times);
  const Kernel kernel;
  const auto step = [&](Pass pass) {
    clock.set_pass(pass);
    clock.begin_step(1);
    for (int i = 0; i < 5; ++i) {
      clock.around(kernel.call());
      work(2 * kMillisecond);
    }
    return clock.end_step();
  };
  CHECK(step(Pass::kVisit).host == 0);
  step(Pass::kInPlace);
  CHECK(times.host_seconds(1) == Approx(2 * kMillisecond).epsilon(0.3));
  const RankTime time = step(Pass::kAtOnce);
  CHECK(time.host == Approx(5 * times.host_seconds(1)));
  CHECK(time.total == Approx(time.host + time.kernels.at("fill")));
  CHECK(time.by_basis[size_t(Basis::kMeasured)] == Approx(time.total));
}

}  // namespace shale::models

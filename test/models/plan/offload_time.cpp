// Tests the planned step time when part of the state is in host memory.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "shale/base/config.h"
#include "shale/base/error.h"
#include "shale/models/language/config.h"
#include "shale/models/language/task.h"
#include "shale/models/plan/time/planned_step.h"
#include "shale/runtime/data/batch_uploads.h"
#include "shale/runtime/data/device_batch.h"
#include "shale/runtime/tensor/plan_backend.h"
#include "shale/test/support/catch.h"

namespace shale::models {
namespace {

// A cluster in which only copies and the host take noticeable time.
Cluster cluster_of() {
  return {.device = "device",
          .memory_bandwidth = 1e18,
          .flops_bf16 = 1e20,
          .flops_fp32 = 1e20,
          .launch_s = 0,
          .product_share = 1,
          .bandwidth_share = 1,
          .overlap_tax = 0,
          .node = {.bandwidth = 1e15, .latency_s = 0},
          .network = {.bandwidth = 1e15, .latency_s = 0},
          .host_bandwidth = 10e9,
          .host_memory_bandwidth = 100e9};
}

struct Planned {
  RankTime time;
  PlannedStep step;
  int64_t parameters = 0;
};

Planned plan_of(const std::string& offload, int zero, bool activations, const Cluster& cluster,
                int ranks = 2) {
  TrainConfig config;
  config.language.layers = 4;
  config.run.threads = 1;
  config.run.micro_batch = 1;
  config.run.global_batch = 2L * ranks;
  config.run.zero = zero;
  config.run.dtype = Precision::kBF16;
  config.run.device = "cuda";
  config.run.offload_to = offload;
  config.run.offload_activations = activations;
  resolve(config, ranks);
  KernelTimes kernels(cluster);
  const PlanMachines machines{cluster, kernels};
  LanguageTask task(config);
  Planned planned;
  for (const Parameter* parameter : task.model().parameters()) {
    planned.parameters += parameter->numel();
  }
  const std::array ranks_planned{plan_time(config.run, task, 0, ranks, machines)};
  planned.time = ranks_planned[0].time;
  planned.step = planned_step(config.run, task.unit(), cluster, ranks_planned, ranks);
  return planned;
}

// Returns true if the build has the emulator. Without it, the scratch memory of GPU kernels is not
// known.
bool can_plan_gpus() {
  try {
    plan_of("none", 0, false, cluster_of(), 1);
    return true;
  } catch (const UnavailableError& error) {
    WARN("skipped: " << error.what());
    return false;
  }
}

}  // namespace

TEST_CASE("the clock runs copies beside kernels, each stream's in turn", "[plan]") {
  const Cluster cluster = cluster_of();
  KernelTimes kernels(cluster);
  StepClock clock(cluster, kernels);
  std::array<char, 3> streams{};
  char *const compute = &streams[0], *const down = &streams[1], *const up = &streams[2];
  using enum PlanClock::Way;
  clock.set_compute_stream(compute);
  clock.begin_step(1);
  clock.copies(kToHost, 1'000'000'000, down);
  clock.copies(kToHost, 1'000'000'000, down);
  clock.copies(kFromHost, 1'000'000'000, up);
  CHECK(clock.time_of(down) == Approx(0.2).epsilon(1e-9));
  CHECK(clock.time_of(up) == Approx(0.1).epsilon(1e-9));
  CHECK(clock.time_of(compute) == 0);
  clock.hold_back(up, clock.time_of(down));
  clock.copies(kFromHost, 1'000'000'000, up);
  clock.hold_back(compute, clock.time_of(up));
  const RankTime time = clock.end_step();
  CHECK(time.total == Approx(0.3).epsilon(1e-9));
  CHECK(time.exposed_host == Approx(0.3).epsilon(1e-9));
  CHECK(time.to_host == Approx(0.2).epsilon(1e-9));
  CHECK(time.from_host == Approx(0.2).epsilon(1e-9));
}

TEST_CASE("a batch is uploaded beside the kernels of the step", "[plan]") {
  const Cluster cluster = cluster_of();
  KernelTimes kernels(cluster);
  StepClock clock(cluster, kernels);
  const Device gpu{.type = DeviceType::kEmu, .arch = 90};
  Context context({}, std::make_unique<PlanBackend>(gpu, /*computes=*/false, &clock));
  clock.set_compute_stream(context.exec().stream);
  BatchUploads uploads(context);
  Batch batch;
  batch.set("image", DType::kF32, {1'000'000});
  DeviceBatch on_device;
  const auto upload = [&] {
    on_device.upload(context, batch, DeviceBatch::Memory::kSame, &uploads);
  };
  for (int warm = 0; warm < 2; ++warm) upload();
  clock.begin_step(1);
  void* const compute = context.exec().stream;
  clock.hold_back(compute, clock.time_of(compute) + 0.5);  // earlier kernels take half a second
  upload();
  const RankTime time = clock.end_step();
  // 4 MB take 0.4 ms from the host, and next to nothing inside the device.
  CHECK(time.from_host == Approx(4e-4).epsilon(0.01));
  CHECK(time.total == Approx(0.5).epsilon(1e-4));
}

TEST_CASE("what the host steps holds back who needs it, and nobody else", "[plan]") {
  const Cluster cluster = cluster_of();
  KernelTimes kernels(cluster);
  StepClock clock(cluster, kernels);
  std::array<char, 2> streams{};
  clock.set_compute_stream(&streams[0]);
  clock.begin_step(1);
  clock.step(7, [&] { clock.host_waits(0.5); });
  clock.copies(PlanClock::Way::kInside, 8, &streams[0]);
  CHECK(clock.time_of(&streams[0]) < 1e-6);
  clock.await(7);
  clock.copies(PlanClock::Way::kInside, 8, &streams[0]);
  CHECK(clock.end_step().exposed_host == Approx(0.5).epsilon(1e-6));
}

TEST_CASE("devices of a node share their host", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.host_shared_bandwidth = 40e9;
  CHECK(host_rates(cluster, 1).copies == Approx(10e9));
  CHECK(host_rates(cluster, 8).copies == Approx(5e9));
  CHECK(host_rates(cluster, 64).copies == Approx(5e9));
  CHECK(host_rates(cluster, 8).memory == Approx(100e9 / 8));
}

TEST_CASE("an offloaded optimizer moves gradients down and parameters up", "[plan]") {
  if (!can_plan_gpus()) return;
  const Cluster cluster = cluster_of();
  const Planned none = plan_of("none", 0, false, cluster);
  CHECK(none.time.to_host == 0);
  CHECK(none.time.on_host == 0);
  CHECK(none.step.exposed_host < 1e-6);
  for (const int zero : {0, 2}) {
    CAPTURE(zero);
    const Planned planned = plan_of("optimizer", zero, false, cluster);
    const double count = double(planned.parameters) / (zero == 0 ? 1 : 2);
    // Gradients are f32, parameters bf16. In stage 2, the gradients of each of two micro-batches
    // are copied. The copies include rows that pad the vocabulary, 3% of so small a model.
    CHECK(planned.time.to_host == Approx((zero == 0 ? 4 : 8) * count / 10e9).epsilon(0.05));
    CHECK(planned.time.from_host == Approx(2 * count / 10e9).epsilon(0.05));
    // Per element, AdamW reads four values of 4 bytes, and writes three of 4 bytes and one of 2
    // bytes. Two ranks share the host's memory bandwidth.
    CHECK(planned.time.on_host >= 30 * count / 50e9 * 0.98);
    // The update on the host takes almost all of the step, because the next step needs the updated
    // parameters.
    CHECK(planned.step.seconds >= planned.time.on_host);
    CHECK(planned.step.seconds <
          1.05 * (planned.time.on_host + planned.time.to_host + planned.time.from_host));
    // Gathering the parameters also waits for the update. This wait counts as exposed host time.
    CHECK(planned.step.exposed_host > 0.5 * planned.step.seconds);
  }
}

TEST_CASE("what is offloaded is hidden as far as the step is long enough", "[plan]") {
  if (!can_plan_gpus()) return;
  Cluster cluster = cluster_of();
  cluster.flops_bf16 = 1e12;
  const Planned activations = plan_of("none", 3, true, cluster);
  CHECK(activations.time.to_host > 0);
  // Activations still on the device when backward needs them are not copied back.
  CHECK(activations.time.from_host <= 1.001 * activations.time.to_host);
  CHECK(activations.time.from_host > 0.5 * activations.time.to_host);
  double before = 0;
  for (const double rate : {1e9, 10e9, 100e9}) {
    cluster.host_bandwidth = rate;
    const Planned planned = plan_of("params", 3, true, cluster);
    // The step takes at least as long as the busiest of device, links and host, and at most the sum
    // of their times.
    const RankTime& time = planned.time;
    const double kernels = time.total - time.exposed_host;
    CHECK(time.total >= std::max({kernels, time.to_host, time.from_host, time.on_host}) * 0.999);
    CHECK(time.total <= (kernels + time.to_host + time.from_host + time.on_host) * 1.001);
    if (before > 0) CHECK(time.total < before);
    before = time.total;
  }
}

TEST_CASE("a CPU copies with its own hands what it offloads", "[plan]") {
  Cluster cluster = cluster_of();
  cluster.is_gpu = false;
  cluster.memory_bandwidth = 10e9;
  TrainConfig config;
  config.language.layers = 4;
  config.run.threads = 1;
  config.run.device = "cpu";
  const auto seconds_of = [&](const char* offload) {
    config.run.offload = OffloadKind::kNone;
    config.run.offload_to = offload;
    resolve(config, 1);
    KernelTimes kernels(cluster);
    const PlanMachines machines{cluster, kernels};
    LanguageTask task(config);
    return plan_time(config.run, task, 0, 1, machines).time;
  };
  const RankTime none = seconds_of("none"), optimizer = seconds_of("optimizer");
  // Gradients are copied in one direction, parameters in the other.
  CHECK(optimizer.kernels.at("copy") > none.kernels.at("copy"));
  CHECK(optimizer.kernels.at("adamw") == Approx(none.kernels.at("adamw")).epsilon(0.02));
  CHECK(optimizer.exposed_host == 0);
  CHECK(optimizer.total > none.total);
}

TEST_CASE("a cluster that does not say what its hosts do is no place to plan offload for",
          "[plan]") {
  Cluster cluster = cluster_of();
  cluster.host_bandwidth = 0;
  for (const auto& [offload, activations] : {std::pair{"optimizer", false}, {"none", true}}) {
    const std::string message =
        test::message_of<ConfigError>([&] { plan_of(offload, 0, activations, cluster); });
    CHECK(test::contains(message, "set host_gbytes_per_s"));
  }
}

}  // namespace shale::models

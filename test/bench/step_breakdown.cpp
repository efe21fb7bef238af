#include "shale/bench/support/step_breakdown.h"

#include <algorithm>

#include "shale/bench/support/bench_device.h"
#include "shale/test/support/catch.h"

namespace shale::bench {
namespace {

using test::contains;

// Each mark comes one second after the previous one.
class SteadyClock final : public StreamClock {
 public:
 private:
  struct Numbered final : Point {
    int number = 0;
  };
  std::unique_ptr<Point> make_point() override { return std::make_unique<Numbered>(); }
  void record(Point& point, void*) override { static_cast<Numbered&>(point).number = ++marks_; }
  bool passed(const Point&) override { return true; }
  void wait(const Point&, void*) override {}
  double seconds_between(const Point& from, const Point& to) override {
    return static_cast<const Numbered&>(to).number - static_cast<const Numbered&>(from).number;
  }

  int marks_ = 0;
};

const PartTime& part_named(const std::vector<PartTime>& parts, std::string_view name) {
  const auto found =
      std::ranges::find_if(parts, [&](const PartTime& part) { return part.name == name; });
  CAPTURE(name);
  REQUIRE(found != parts.end());
  return *found;
}

// One block of width 128 with a vocabulary of 256, on 2 x 32 tokens.
StepBreakdown breakdown_of(const Device& device, const Peaks& peaks) {
  comm::World world(0, nullptr);
  TrainOptions options{.device = device,
                       .model = "nano",
                       .layers = 1,
                       .seq_len = 32,
                       .micro_batch = 2,
                       .threads = 1};
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  const auto clock = make_stream_clock(loop.device());
  return measure_breakdown(loop, recorder, peaks, *clock, /*rounds=*/1);
}

}  // namespace

TEST_CASE("a part's time is that of its calls; repeated calls count as their mean", "[bench]") {
  const PartNames names({});
  Peaks peaks;
  peaks.copy = 10;  // bytes/s
  SteadyClock clock;
  CallTimer timer(names, peaks, clock);
  int runs = 0;
  char memory[50];
  const View x = make_view(memory, DType::kU8, {25}), y = make_view(memory + 25, DType::kU8, {25});
  const kernels::CopyArgs copy_args = {.x = x, .y = y};
  const kernels::FillArgs fill_args = {.y = y};
  const auto call = [&](const kernels::SlotBase& slot, const void* args) {
    timer.around(kernels::SlotCall(slot, {}, args, [&runs](const Exec&) { ++runs; }));
  };
  call(kernels::copy, &copy_args);
  call(kernels::copy, &copy_args);
  call(kernels::fill, &fill_args);
  timer.end_step();
  CHECK(runs == 3);
  timer.repeat_calls(true);
  call(kernels::copy, &copy_args);
  timer.end_step();
  CHECK(runs > 5);

  const auto parts = timer.parts();
  REQUIRE(parts.size() == 2);
  const PartTime& copies = part_named(parts, "copies");
  CHECK(copies.calls == 2);
  CHECK(copies.in_step_seconds == 2);
  // The group of runs - 4 repeated calls takes one second.
  CHECK(copies.alone_seconds == Approx(1.0 / (runs - 4)));
  CHECK(copies.floor_seconds == 2 * 5);
  CHECK(copies.cost.bytes() == 2 * 50);
}

TEST_CASE("parts, communication and gaps are the whole step", "[bench]") {
  const StepBreakdown breakdown = breakdown_of({}, {});
  const PartTime all = breakdown.all_parts();
  CHECK(all.in_step_seconds > 0);
  CHECK(all.in_step_seconds + breakdown.exposed_comm_seconds + breakdown.gap_seconds() ==
        Approx(breakdown.step_seconds));
  double share = 0;
  for (const Json& row : breakdown_rows(breakdown)) share += row["share"].get<double>();
  CHECK(share == Approx(1));
  CHECK(breakdown.ratio() == Approx(breakdown.step_seconds / all.alone_seconds));
  const std::string table = breakdown_table(breakdown);
  CHECK(contains(table, "communication, exposed"));
  CHECK(contains(table, "gaps between kernels"));
}

TEST_CASE("a step of GPT-2 consists of these parts, on every kind of device", "[bench]") {
  const Device device = GENERATE(Device{}, Device{.type = DeviceType::kEmu, .arch = 80},
                                 Device{.type = DeviceType::kEmu, .arch = 90});
  CAPTURE(to_string(device));
  const StepBreakdown breakdown = breakdown_of(device, {});
  for (const char* name : {"embedding, forward",
                           "norm, forward",
                           "QKV, forward (bias)",
                           "attention, forward",
                           "attention output, forward (bias residual)",
                           "FFN up, forward (bias gelu)",
                           "FFN down, forward (bias residual)",
                           "classifier, forward",
                           "loss and gradient of logits",
                           "classifier, input gradient",
                           "classifier, weight gradient",
                           "FFN down, input gradient (dgelu bias_grad)",
                           "FFN down, weight gradient",
                           "FFN up, input gradient",
                           "FFN up, weight gradient",
                           "attention output, input gradient",
                           "attention output, weight gradient",
                           "attention, backward",
                           "QKV, input gradient",
                           "QKV, weight gradient",
                           "norm, backward",
                           "gradients of biases",
                           "embedding, backward",
                           "norm of the gradient",
                           "optimizer"}) {
    const PartTime& part = part_named(breakdown.parts, name);
    CHECK(part.calls >= 1);
    CHECK(part.in_step_seconds > 0);
    CHECK(part.alone_seconds > 0);
  }
}

TEST_CASE("parts stand in the order of a step", "[bench]") {
  const StepBreakdown breakdown = breakdown_of({}, {});
  auto from = breakdown.parts.begin();
  for (const char* name :
       {"embedding, forward", "norm, forward", "QKV, forward (bias)", "attention, forward",
        "FFN down, forward (bias residual)", "classifier, forward", "loss and gradient of logits",
        "classifier, weight gradient", "FFN up, weight gradient", "attention, backward",
        "embedding, backward", "norm of the gradient", "optimizer"}) {
    CAPTURE(name);
    from = std::find_if(from, breakdown.parts.end(),
                        [&](const PartTime& part) { return part.name == name; });
    REQUIRE(from != breakdown.parts.end());
  }
}

TEST_CASE("work and floors of parts are those of their sizes", "[bench]") {
  Peaks peaks;
  peaks.gemm[DType::kF32] = 1e9;  // FLOP/s
  peaks.copy = 1e15;              // bytes/s: so high that memory is never the bottleneck
  const StepBreakdown breakdown = breakdown_of({}, peaks);
  const double T = 64, C = 128, V = 256;
  const PartTime& up = part_named(breakdown.parts, "FFN up, forward (bias gelu)");
  CHECK(up.calls == 1);
  CHECK(up.cost.flops == 2 * T * C * 4 * C);
  // Reads x, weight and bias; writes the result and GELU's argument.
  CHECK(up.cost.bytes() == 4 * (T * C + 4 * C * C + 4 * C + 2 * T * 4 * C));
  CHECK(up.floor_seconds == Approx(up.cost.flops / 1e9));
  CHECK(part_named(breakdown.parts, "classifier, weight gradient").cost.flops == 2 * T * C * V);
  // Attention has two GEMMs. Each does 2 FLOP per element of C for every pair of a query and a key
  // that it sees, in 2 sequences of 32 tokens.
  CHECK(part_named(breakdown.parts, "attention, forward").cost.flops == 4 * C * 2 * 32 * 33 / 2);
  // Two norms of the block and the last one.
  CHECK(part_named(breakdown.parts, "norm, forward").calls == 3);
}

}  // namespace shale::bench

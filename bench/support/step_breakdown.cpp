#include "shale/bench/support/step_breakdown.h"

#include <algorithm>
#include <utility>

#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

// Number of calls after the real one. With them, the kernel dominates the mean, and not the
// resolution of the clock.
constexpr int kRepeats = 4;

std::string ms(double seconds) {
  return fixed(seconds * 1e3, 2);
}
std::string quotient(double a, double b) {
  return a > 0 && b > 0 ? fixed(a / b, 2) : "";
}

}  // namespace

PartTime StepBreakdown::all_parts() const {
  PartTime all{.name = "all kernels"};
  for (const PartTime& part : parts) {
    all.calls += part.calls;
    all.in_step_seconds += part.in_step_seconds;
    all.alone_seconds += part.alone_seconds;
    all.floor_seconds += part.floor_seconds;
    all.cost += part.cost;
  }
  return all;
}

double StepBreakdown::gap_seconds() const {
  return step_seconds - exposed_comm_seconds - all_parts().in_step_seconds;
}

CallTimer::Part& CallTimer::part_named(const std::string& name) {
  const auto found = std::ranges::find(parts_, name, &Part::name);
  return found == parts_.end() ? parts_.emplace_back(name) : *found;
}

void CallTimer::around(const kernels::SlotCall& call) {
  const kernels::KernelCall kernel = described(call);
  Part& part = part_named(names_.of(kernel));
  void* const stream = call.exec().stream;
  if (repeat_) {
    call.run();
    const size_t from = clock_.mark(stream);
    for (int i = 0; i < kRepeats; ++i) call.run();
    timed_.push_back({&part, from, clock_.mark(stream), kRepeats});
    return;
  }
  const size_t from = clock_.mark(stream);
  call.run();
  timed_.push_back({&part, from, clock_.mark(stream), 1});
  ++part.calls;
  part.cost += kernel.cost;
  part.floor_seconds += peaks_.bound_seconds(kernel.cost, kernel.dtype);
}

void CallTimer::end_step() {
  for (const Timed& timed : timed_) {
    timed.part->seconds += clock_.seconds(timed.from, timed.to) / timed.calls;
  }
  timed_.clear();
  clock_.forget_marks();
  for (Part& part : parts_) {
    (repeat_ ? part.alone : part.in_step).add(std::exchange(part.seconds, 0));
  }
}

std::vector<PartTime> CallTimer::parts() const {
  std::vector<PartTime> out;
  for (const Part& part : parts_) {
    const auto steps = double(part.in_step.seconds.size());
    kernels::Cost cost = part.cost;
    cost.flops /= steps, cost.read_bytes /= steps, cost.written_bytes /= steps;
    out.push_back({.name = part.name,
                   .calls = double(part.calls) / steps,
                   .in_step_seconds = part.in_step.median(),
                   .alone_seconds = part.alone.median(),
                   .floor_seconds = part.floor_seconds / steps,
                   .cost = cost});
  }
  return out;
}

StepBreakdown measure_breakdown(TrainLoop& loop, KernelRecorder& recorder, const Peaks& peaks,
                                StreamClock& clock, int64_t rounds) {
  const PartNames names(loop.work().products);
  CallTimer timer(names, peaks, clock);
  const auto timed_step = [&](bool repeat) {
    timer.repeat_calls(repeat);
    recorder.set_inner(&timer);
    loop.step(recorder);  // returns after the device has finished
    recorder.set_inner(nullptr);
    timer.end_step();
  };
  Samples step, exposed;
  for (int64_t i = 0; i < rounds; ++i) {
    const StepTime time = loop.step(recorder);
    step.add(time.seconds);
    exposed.add(time.exposed_comm_seconds);
    timed_step(/*repeat=*/false);
    timed_step(/*repeat=*/true);
  }
  return {.parts = timer.parts(),
          .step_seconds = step.median(),
          .exposed_comm_seconds = exposed.median()};
}

std::string breakdown_table(const StepBreakdown& breakdown) {
  Table table({"part", "calls", "ms in step", "ms alone", "step / alone", "floor ms",
               "floor / step", "% of step"});
  const auto add = [&](const PartTime& part) {
    const bool has_floor = part.floor_seconds > 0;
    table.add({part.name, fixed(part.calls, 0), ms(part.in_step_seconds), ms(part.alone_seconds),
               quotient(part.in_step_seconds, part.alone_seconds),
               has_floor ? ms(part.floor_seconds) : "",
               has_floor ? percent(part.floor_seconds / part.in_step_seconds) : "",
               percent(part.in_step_seconds / breakdown.step_seconds)});
  };
  const auto add_rest = [&](const char* name, double seconds) {
    table.add({name, "", ms(seconds), "", "", "", "", percent(seconds / breakdown.step_seconds)});
  };
  for (const PartTime& part : breakdown.parts) add(part);
  PartTime whole = breakdown.all_parts();
  add(whole);
  add_rest("communication, exposed", breakdown.exposed_comm_seconds);
  add_rest("gaps between kernels", breakdown.gap_seconds());
  whole.name = "whole step";
  whole.in_step_seconds = breakdown.step_seconds;
  add(whole);
  return table.text();
}

Json breakdown_rows(const StepBreakdown& breakdown) {
  Json rows = Json::array();
  const auto add = [&](const PartTime& part) {
    rows.push_back({{"kind", "breakdown"},
                    {"name", part.name},
                    {"calls", part.calls},
                    {"ms", part.in_step_seconds * 1e3},
                    {"alone_ms", part.alone_seconds * 1e3},
                    {"floor_ms", part.floor_seconds * 1e3},
                    {"share", part.in_step_seconds / breakdown.step_seconds},
                    {"gflop", part.cost.flops / 1e9},
                    {"gbytes", part.cost.bytes() / 1e9}});
  };
  for (const PartTime& part : breakdown.parts) add(part);
  add({.name = "communication, exposed", .in_step_seconds = breakdown.exposed_comm_seconds});
  add({.name = "gaps between kernels", .in_step_seconds = breakdown.gap_seconds()});
  return rows;
}

}  // namespace shale::bench

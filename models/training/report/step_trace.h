#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shale/base/timeline.h"
#include "shale/comm/hosts/clock_offset.h"
#include "shale/comm/world.h"
#include "shale/models/training/report/trace_file.h"
#include "shale/models/training/step.h"
#include "shale/runtime/tensor/context.h"
#include "shale/runtime/tensor/device_marks.h"

namespace shale::models {

// Steps that are recorded, counted from 1 as metrics.jsonl does, both included.
struct TraceWindow {
  int64_t first = 0;
  int64_t last = 0;

  friend bool operator==(const TraceWindow&, const TraceWindow&) = default;
};
// "3-5", or "7" for one step. Throws ConfigError.
TraceWindow parse_trace_steps(std::string_view text);

// Records some steps of a run on all ranks (base/timeline.h) and writes them to one file, by rank
// 0, with the clocks of hosts compared before and after. What is recorded: steps, their phases,
// modules and kernels as they are called; waits; data; checkpoints; collectives and messages of
// links; memory. What a device runs later is there twice: when it is queued, on the track "host",
// and when it runs, on "device", as are collectives of a backend that uses the device's streams.
class StepTrace {
 public:
  struct Options {
    std::string file;  // see trace_format()
    // Empty: the third to the fifth step that this start of the run does.
    std::string steps = {};
    int64_t first_step = 0;   // done before
    int64_t total_steps = 0;  // of the run
  };
  // All are outlived. `timeline` is the tracer of the group. Throws ConfigError for steps that the
  // run does not come to; steps that were done before are left out.
  StepTrace(const Options& options, Timeline& timeline, Context& context, comm::World& world,
            comm::ProcessGroup& group, Module& model, std::vector<Module*> units);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Before each step, which counts from 0 here. Begins and ends the record where it is time.
  // Collective.
  void before_step(int64_t step);
  // After the last step, or where the run stops. Collective.
  void finish();
  void begins(StepPhase phase);
  void ends(StepPhase phase);

 private:
  struct HookedAt {
    Module* module;
    HookPoint point;
    uint64_t id;
  };
  void start();
  void stop();
  TraceRecord take();
  void write(TraceRecord record, const comm::ClockOffset& after, int64_t after_ns);
  void hook(Module& module);
  void hook_backward(Module& unit);
  void add_hook(Module& module, HookPoint point, Module::Hook hook);
  void count_memory();
  comm::ClockOffset clock_offset() const;

  const std::string file_;
  const TraceFormat format_;
  const TraceWindow window_;
  Timeline& timeline_;
  Context& context_;
  comm::World& world_;
  comm::ProcessGroup& group_;
  Module& model_;
  const std::vector<Module*> units_;
  std::vector<HookedAt> hooks_;

  std::unique_ptr<DeviceMarks> marks_;  // null: the device runs as the host calls
  bool is_over_ = false;
  comm::ClockOffset before_;
  int64_t before_ns_ = 0;
  int64_t device_error_ns_ = 0;
  int64_t last_step_ = 0;  // that was begun, from 1
  size_t phase_opened_ = 0;  // these are Timeline::open()'s
  std::vector<size_t> forward_opened_;
  Module* backward_ = nullptr;  // the unit whose backward runs
  size_t backward_opened_ = 0;
};

}  // namespace shale::models

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

// Range of steps to record, counted from 1 as in metrics.jsonl. Includes both ends.
struct TraceWindow {
  int64_t first = 0;
  int64_t last = 0;

  friend bool operator==(const TraceWindow&, const TraceWindow&) = default;
};
// Parses "3-5", or "7" for one step. Throws ConfigError.
TraceWindow parse_trace_steps(std::string_view text);

// Records some steps of a run on all ranks (base/timeline.h). Rank 0 writes them to one file. The
// hosts' clocks are compared before and after. A trace has steps, phases, modules and kernel calls;
// waits; data loading; checkpoints; collectives and link messages; memory. Asynchronous device work
// appears twice: its launch on the track "host", and its execution on "device". The same is true
// for collectives of a backend that uses the device's streams.
class StepTrace {
 public:
  struct Options {
    std::string file;  // output file; see trace_format()
    // Steps such as "3-5"; empty: the third to fifth step after this start of the run.
    std::string steps = {};
    int64_t first_step = 0;   // steps done before this start
    int64_t total_steps = 0;  // number of steps of the run
  };
  // timeline: tracer of the group. All arguments must outlive this. Throws ConfigError for steps
  // that the run does not reach. Steps that are done are not recorded.
  StepTrace(const Options& options, Timeline& timeline, Context& context, comm::World& world,
            comm::ProcessGroup& group, Module& model, std::vector<Module*> units);
  ~StepTrace();
  StepTrace(const StepTrace&) = delete;
  StepTrace& operator=(const StepTrace&) = delete;

  // Call it before each step; `step` counts from 0. Starts and ends the recording. Collective.
  void before_step(int64_t step);
  // Call it after the last step, or when the run stops. Collective.
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

  std::unique_ptr<DeviceMarks> marks_;  // null: the device is synchronous
  bool is_over_ = false;
  comm::ClockOffset before_;
  int64_t before_ns_ = 0;
  int64_t device_error_ns_ = 0;
  int64_t last_step_ = 0;  // number of the last begun step, counted from 1
  size_t phase_opened_ = 0;  // the *_opened_ members are indices that Timeline::open() returned
  std::vector<size_t> forward_opened_;
  Module* backward_ = nullptr;  // unit whose backward is running
  size_t backward_opened_ = 0;
};

}  // namespace shale::models

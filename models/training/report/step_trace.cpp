#include "shale/models/training/report/step_trace.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/log.h"
#include "shale/base/parse.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

TraceWindow window_of(const StepTrace::Options& options) {
  if (options.steps.empty())
    return {.first = options.first_step + 3, .last = options.first_step + 5};
  const TraceWindow window = parse_trace_steps(options.steps);
  if (window.last > options.total_steps) {
    throw ConfigError(cat("--trace-steps is ", options.steps, ", but the run has ",
                          options.total_steps, " steps"));
  }
  return {.first = std::max(window.first, options.first_step + 1), .last = window.last};
}

// Returns a text such as ", host clocks agree within 12 us"; empty for 0 ns.
std::string within(std::string_view what, int64_t ns) {
  if (ns == 0) return {};
  return cat(what, format_number(1e-3 * static_cast<double>(ns)), " us");
}

int64_t now_ns() {
  return Timeline::nanoseconds(Timeline::Clock::now());
}

}  // namespace

TraceWindow parse_trace_steps(std::string_view text) {
  const size_t dash = text.find('-');
  const auto first = parse_int(text.substr(0, dash));
  const auto last = dash == text.npos ? first : parse_int(text.substr(dash + 1));
  if (!first || !last || *first < 1 || *last < *first) {
    throw ConfigError(cat("--trace-steps: expected steps such as 3-5, counted from 1, found '",
                          excerpt(text), "'"));
  }
  return {.first = *first, .last = *last};
}

StepTrace::StepTrace(const Options& options, Timeline& timeline, Context& context,
                     comm::World& world, comm::ProcessGroup& group, Module& model,
                     std::vector<Module*> units)
    : file_(options.file),
      format_(trace_format(options.file)),
      window_(window_of(options)),
      timeline_(timeline),
      context_(context),
      world_(world),
      group_(group),
      model_(model),
      units_(std::move(units)) {}

StepTrace::~StepTrace() {
  timeline_.stop();  // timeline_ outlives marks_, so after an error it must not go on recording
  world_.record(nullptr);
  context_.set_tracer(nullptr);
  for (const HookedAt& hooked : hooks_) hooked.module->remove_hook(hooked.point, hooked.id);
}

void StepTrace::before_step(int64_t step) {
  if (is_over_) return;
  const int64_t number = step + 1;
  if (timeline_.is_recording()) {
    timeline_.close(0);
    if (number > window_.last) return stop();
  } else if (number == window_.first) {
    start();
  }
  if (!timeline_.is_recording()) return;
  if (marks_ != nullptr) marks_->read();
  last_step_ = number;
  timeline_.open(cat("step ", number));
  count_memory();
}

void StepTrace::finish() {
  if (timeline_.is_recording()) return stop();
  if (is_over_ || group_.rank() != 0) return;
  log_warning("--trace: steps ", window_.first, " to ", window_.last,
              " did not run, nothing was traced");
}

comm::ClockOffset StepTrace::clock_offset() const {
  return comm::measure_clock_offset(group_.host(), host_identity(), now_ns);
}

void StepTrace::start() {
  before_ = clock_offset();
  before_ns_ = now_ns();
  hook(model_);
  for (Module* unit : units_) hook_backward(*unit);
  context_.set_tracer(&timeline_);
  world_.record(&timeline_);
  void* const stream = context_.exec().stream;
  if (stream != nullptr) {
    marks_ = std::make_unique<DeviceMarks>(context_.backend(), stream);
    marks_->anchor();
  }
  timeline_.start({.marks = marks_.get(), .stream = stream, .ranges = context_.backend().tracer()});
}

void StepTrace::stop() {
  timeline_.stop();
  world_.record(nullptr);
  context_.set_tracer(nullptr);
  for (const HookedAt& hooked : hooks_) hooked.module->remove_hook(hooked.point, hooked.id);
  hooks_.clear();
  is_over_ = true;
  TraceRecord record = take();
  const comm::ClockOffset after = clock_offset();
  write(std::move(record), after, now_ns());
}

TraceRecord StepTrace::take() {
  if (marks_ == nullptr) return timeline_.take();
  marks_->anchor();
  TraceRecord record = timeline_.take([this](size_t mark) { return marks_->nanoseconds(mark); });
  device_error_ns_ = marks_->error_ns();
  marks_.reset();
  return record;
}

void StepTrace::write(TraceRecord record, const comm::ClockOffset& after, int64_t after_ns) {
  record.rank = group_.rank();
  record.host = host_name();
  int64_t zero_ns = before_ns_;  // start of the trace, in time of rank 0's clock
  group_.host().broadcast(make_view(&zero_ns, {1}), 0, {.tag = "trace"});
  const double drift = static_cast<double>(after.ns - before_.ns) /
                       static_cast<double>(std::max<int64_t>(after_ns - before_ns_, 1));
  map_times(record, [&](int64_t time) {
    const double since = static_cast<double>(time - before_ns_);
    return std::max<int64_t>(0, time - before_.ns - std::llround(drift * since) - zero_ns);
  });
  std::array<int64_t, 2> error_ns = {std::max(before_.error_ns, after.error_ns), device_error_ns_};
  group_.host().all_reduce_max(make_view(error_ns.data(), {2}), {.tag = "trace"});
  const auto ranks = group_.host().gather_bytes(encode_trace(record, format_), 0, "trace");
  if (group_.rank() != 0) return;
  try {
    write_file_atomically(file_, join_traces(ranks, format_));
    log_info("wrote ", file_, ": steps ", window_.first, " to ", last_step_, " of ", group_.size(),
             group_.size() == 1 ? " rank" : " ranks",
             within(", host clocks agree within ", error_ns[0]),
             within(", device clocks agree within ", error_ns[1]));
  } catch (const DiskError& error) {
    log_warning("cannot write the trace, training continues: ", error.what());
  }
}

void StepTrace::begins(StepPhase phase) {
  if (!timeline_.is_recording()) return;
  phase_opened_ = timeline_.open(phase_name(phase));
}

void StepTrace::ends(StepPhase) {
  if (!timeline_.is_recording()) return;
  timeline_.close(phase_opened_);
  backward_ = nullptr;
  count_memory();
}

void StepTrace::count_memory() {
  const MemoryStats stats = context_.allocator().stats();
  timeline_.count("memory allocated, bytes", static_cast<double>(stats.allocated));
  timeline_.count("memory reserved, bytes", static_cast<double>(stats.reserved));
}

void StepTrace::add_hook(Module& module, HookPoint point, Module::Hook hook) {
  hooks_.push_back({&module, point, module.add_hook(point, std::move(hook))});
}

void StepTrace::hook(Module& module) {
  for (Module* child : module.children()) hook(*child);
  if (!module.runs()) return;
  const std::string name = module.parent() == nullptr ? "model" : module.full_name();
  add_hook(module, HookPoint::kBeforeForward,
           [this, name] { forward_opened_.push_back(timeline_.open(name)); });
  add_hook(module, HookPoint::kAfterForward, [this] {
    timeline_.close(forward_opened_.back());
    forward_opened_.pop_back();
  });
}

// Records the backward of a unit. If no input of the unit needs a gradient, no hook marks its end;
// then it ends when the next unit begins, or at the end of the phase.
void StepTrace::hook_backward(Module& unit) {
  const auto end = [this] {
    if (backward_ != nullptr) timeline_.close(backward_opened_);
    backward_ = nullptr;
  };
  const std::string name = cat(unit.full_name(), " backward");
  add_hook(unit, HookPoint::kBeforeBackward, [this, end, name, &unit] {
    end();
    backward_ = &unit;
    backward_opened_ = timeline_.open(name);
    count_memory();
  });
  add_hook(unit, HookPoint::kAfterBackward, [this, end, &unit] {
    if (backward_ == &unit) end();
  });
}

}  // namespace shale::models

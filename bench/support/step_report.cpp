#include "shale/bench/support/step_report.h"

#include <algorithm>

#include "shale/base/text.h"
#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

template <typename Part>
void longest_first(std::vector<Part>& parts) {
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.seconds > b.seconds; });
}

std::string rate(double work, double seconds) {
  return work > 0 && seconds > 0 ? fixed(work / seconds / 1e9, 1) : "";
}

}  // namespace

std::vector<StepRow> phase_rows(const std::string& phase, const Tracer& tracer, double seconds,
                                const KernelRecorder& recorder, int64_t steps) {
  const auto n = double(steps);
  std::vector<StepRow> parts;
  double in_kernels = 0;
  for (const auto& [slot, time] : tracer.totals()) {
    StepRow part{
        .phase = phase, .name = slot, .calls = double(time.calls) / n, .seconds = time.seconds / n};
    if (const auto work = recorder.totals().find({phase, slot}); work != recorder.totals().end()) {
      part.flops = work->second.cost.flops / n;
      part.bytes = work->second.cost.bytes() / n;
    }
    parts.push_back(std::move(part));
    in_kernels += time.seconds;
  }
  parts.push_back(
      {.phase = phase, .name = "outside kernels", .seconds = (seconds - in_kernels) / n});
  longest_first(parts);
  return parts;
}

std::vector<StepRow> step_rows(const TrainLoop& loop, const KernelRecorder& recorder,
                               int64_t steps) {
  std::vector<StepRow> parts;
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = Phase(i);
    const std::vector<StepRow> rows = phase_rows(phase_name(phase), loop.slot_times(phase),
                                                 loop.phase_seconds(phase), recorder, steps);
    parts.insert(parts.end(), rows.begin(), rows.end());
  }
  longest_first(parts);
  return parts;
}

std::vector<ProductRow> product_totals(const KernelRecorder& recorder, int64_t steps,
                                       const ProductFloor* floor, int64_t floor_runs) {
  const auto n = double(steps);
  std::vector<ProductRow> parts;
  for (const auto& [name, total] : recorder.products()) {
    ProductRow part{.name = name,
                    .calls = double(total.calls) / n,
                    .seconds = total.seconds / n,
                    .flops = total.cost.flops / n};
    if (floor != nullptr && floor_runs > 0) {
      const auto vendor = floor->totals().find(name);
      if (vendor != floor->totals().end()) {
        part.vendor_seconds = vendor->second.seconds / double(floor_runs);
      }
    }
    parts.push_back(std::move(part));
  }
  longest_first(parts);
  return parts;
}

std::string parts_table(const std::vector<StepRow>& parts, double step_seconds) {
  Table table({"part", "calls", "ms", "% of step", "GFLOP/s", "GB/s"});
  double kernels = 0, sum = 0;
  for (const StepRow& part : parts) {
    sum += part.seconds;
    if (part.calls > 0) kernels += part.seconds;
    table.add({part.phase + " " + part.name, part.calls > 0 ? fixed(part.calls, 0) : "",
               fixed(part.seconds * 1e3, 2), percent(part.seconds / step_seconds),
               rate(part.flops, part.seconds), rate(part.bytes, part.seconds)});
  }
  table.add({"all kernels", "", fixed(kernels * 1e3, 2), percent(kernels / step_seconds), "", ""});
  table.add({"unaccounted", "", fixed((step_seconds - sum) * 1e3, 2),
             percent(1 - sum / step_seconds), "", ""});
  return table.text();
}

std::string product_table(const std::vector<ProductRow>& parts, double step_seconds) {
  Table table({"GEMM (m x n x k), convolution", "calls", "ms", "% of step", "GFLOP/s", "oneDNN ms",
               "oneDNN GFLOP/s", "oneDNN / ours"});
  ProductRow all{.name = "all GEMMs and convolutions"};
  const auto add = [&](const ProductRow& part) {
    const bool measured = part.vendor_seconds > 0;
    table.add({part.name, fixed(part.calls, 0), fixed(part.seconds * 1e3, 2),
               percent(part.seconds / step_seconds), rate(part.flops, part.seconds),
               measured ? fixed(part.vendor_seconds * 1e3, 2) : "",
               rate(measured ? part.flops : 0, part.vendor_seconds),
               measured ? percent(part.vendor_seconds / part.seconds) : ""});
  };
  for (const ProductRow& part : parts) {
    add(part);
    all.calls += part.calls;
    all.seconds += part.seconds;
    all.vendor_seconds += part.vendor_seconds;
    all.flops += part.flops;
  }
  add(all);
  return table.text();
}

std::string memory_table(const MemoryParts& memory) {
  Table table({"memory", "bytes", "", "% of sum"});
  const auto sum = double(memory.sum());
  const auto add = [&](const char* name, int64_t bytes) {
    table.add(
        {name, std::to_string(bytes), format_bytes(double(bytes)), percent(double(bytes) / sum)});
  };
  add("parameters", memory.parameters);
  add("gradients", memory.gradients);
  add("optimizer", memory.optimizer);
  add("saved activations", memory.saved_activations);
  add("workspace", memory.workspace);
  add("ids, communication", memory.other);
  add("sum of the parts", memory.sum());
  add("peak in use", memory.peak_allocated);
  add("peak reserved", memory.peak_reserved);
  return table.text();
}

Json step_json(const std::vector<StepRow>& parts, double step_seconds) {
  Json rows = Json::array();
  for (const StepRow& part : parts) {
    rows.push_back({{"kind", "part"},
                    {"phase", part.phase},
                    {"name", part.name},
                    {"calls", part.calls},
                    {"ms", part.seconds * 1e3},
                    {"share", part.seconds / step_seconds},
                    {"gflop", part.flops / 1e9},
                    {"gbytes", part.bytes / 1e9}});
  }
  return rows;
}

Json product_json(const std::vector<ProductRow>& parts) {
  Json rows = Json::array();
  for (const ProductRow& part : parts) {
    rows.push_back({{"kind", "gemm"},
                    {"name", part.name},
                    {"calls", part.calls},
                    {"ms", part.seconds * 1e3},
                    {"vendor_ms", part.vendor_seconds * 1e3},
                    {"gflop", part.flops / 1e9}});
  }
  return rows;
}

Json memory_json(const MemoryParts& memory) {
  return {{"parameters", memory.parameters},
          {"gradients", memory.gradients},
          {"optimizer", memory.optimizer},
          {"saved_activations", memory.saved_activations},
          {"workspace", memory.workspace},
          {"other", memory.other},
          {"sum", memory.sum()},
          {"peak_allocated", memory.peak_allocated},
          {"peak_reserved", memory.peak_reserved}};
}

}  // namespace shale::bench

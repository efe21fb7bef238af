#include "shale/bench/support/memory_sweep.h"

#include <algorithm>
#include <cstring>

#include "shale/bench/support/table.h"

namespace shale::bench {
namespace {

using models::OffloadKind;

struct Choice {
  OffloadKind kind;
  bool activations;
  const char* name;
};
constexpr Choice kOffloads[] = {
    {OffloadKind::kNone, false, "none"},
    {OffloadKind::kOptimizer, false, "optimizer"},
    {OffloadKind::kNone, true, "activations"},
    {OffloadKind::kOptimizer, true, "optimizer + activations"},
    {OffloadKind::kParameters, true, "params + activations"},
};

const char* offload_name(const TrainOptions& options) {
  for (const Choice& choice : kOffloads) {
    if (choice.kind == options.offload && choice.activations == options.offload_activations) {
      return choice.name;
    }
  }
  return "unknown";
}

const char* recompute_name(Recompute recompute) {
  switch (recompute) {
    case Recompute::kNone: return "none";
    case Recompute::kSelective: return "selective";
    case Recompute::kFull: return "full";
  }
  return "unknown";
}

int64_t largest(comm::ProcessGroup& group, int64_t mine) {
  const std::string_view bytes(reinterpret_cast<const char*>(&mine), sizeof(mine));
  int64_t most = 0;
  for (const std::string& other : group.all_gather_bytes(bytes, "bench memory")) {
    int64_t value = 0;
    std::memcpy(&value, other.data(), sizeof(value));
    most = std::max(most, value);
  }
  return most;
}

MemoryCase measure(TrainOptions options, comm::World& world) {
  KernelRecorder recorder;
  TrainLoop loop(options, world);
  loop.step(recorder);  // allocates memory that the next step reuses
  const StepTime time = loop.step(recorder);
  const MemoryParts memory = loop.memory();
  return {.options = options,
          .parameters = loop.parameter_count(),
          .device_peak = largest(loop.group(), memory.peak_allocated),
          .host_peak = largest(loop.group(), memory.host_peak),
          .step_seconds = time.seconds,
          .loss = time.loss};
}

}  // namespace

std::vector<MemoryCase> memory_sweep(const TrainOptions& base, comm::World& world) {
  std::vector<MemoryCase> cases;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int zero : {0, 1, 2, 3}) {
      for (const Recompute recompute :
           {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        for (const Choice& offload : kOffloads) {
          if (offload.kind == OffloadKind::kParameters && zero < 3) continue;
          TrainOptions options = base;
          options.dtype = dtype;
          options.zero = zero;
          options.recompute = recompute;
          options.offload = offload.kind;
          options.offload_activations = offload.activations;
          cases.push_back(measure(options, world));
        }
      }
    }
  }
  return cases;
}

std::string memory_sweep_table(const std::vector<MemoryCase>& cases) {
  Table table({"dtype", "zero", "recompute", "on the host", "device MiB", "of the first",
               "host MiB", "step ms", "loss"});
  constexpr double kMiB = 1 << 20;
  for (const MemoryCase& one : cases) {
    const double ratio = double(one.device_peak) / double(cases.front().device_peak);
    table.add({std::string(dtype_name(one.options.dtype)), std::to_string(one.options.zero),
               recompute_name(one.options.recompute), offload_name(one.options),
               fixed(double(one.device_peak) / kMiB, 1), percent(ratio),
               fixed(double(one.host_peak) / kMiB, 1), fixed(one.step_seconds * 1e3, 1),
               fixed(double(one.loss), 6)});
  }
  return table.text();
}

Json memory_sweep_rows(const std::vector<MemoryCase>& cases, int ranks) {
  Json rows = Json::array();
  for (const MemoryCase& one : cases) {
    rows.push_back({{"kind", "memory"},
                    {"model", one.options.model},
                    {"params", one.parameters},
                    {"ranks", ranks},
                    {"seq_len", one.options.seq_len},
                    {"micro_batch", one.options.micro_batch},
                    {"dtype", std::string(dtype_name(one.options.dtype))},
                    {"zero", one.options.zero},
                    {"recompute", recompute_name(one.options.recompute)},
                    {"offload", offload_name(one.options)},
                    {"device_peak_bytes", one.device_peak},
                    {"host_peak_bytes", one.host_peak},
                    {"step_ms", one.step_seconds * 1e3},
                    {"loss", one.loss}});
  }
  return rows;
}

}  // namespace shale::bench

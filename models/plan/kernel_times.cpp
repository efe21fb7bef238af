#include "shale/models/plan/kernel_times.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/kernels/dry_run.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kFewestRuns = 3, kMostRuns = 30;
constexpr double kEnoughSeconds = 0.05;  // of all runs together, but for the fewest

KernelKind kind_of(std::string_view slot) {
  if (slot == "attention_fwd") return KernelKind::kAttention;
  if (slot == "attention_bwd") return KernelKind::kAttentionGrad;
  return KernelKind::kOther;
}

double modelled_seconds(const Cluster& cluster, const kernels::KernelCall& kernel) {
  const KernelKind kind = kind_of(kernel.slot);
  if (kernel.scores > 0 && cluster.scores != Cluster::Scores::kFused) {
    return attention_seconds(cluster, kernel.scores, kernel.head_size, kernel.dtype,
                             kind == KernelKind::kAttentionGrad);
  }
  return kernel_seconds(cluster, kernel.cost, kernel.dtype, kind);
}

double seconds_of_run(const kernels::SlotCall& call) {
  const Clock::time_point start = Clock::now();
  call.run();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The first run, which provides pages, does not count.
double measured_seconds(const kernels::SlotCall& call) {
  const kernels::DryRun::Pause real;
  call.run();
  std::vector<double> runs;
  double sum = 0;
  while (runs.size() < kFewestRuns || (sum < kEnoughSeconds && runs.size() < kMostRuns)) {
    runs.push_back(seconds_of_run(call));
    sum += runs.back();
  }
  std::nth_element(runs.begin(), runs.begin() + std::ptrdiff_t(runs.size() / 2), runs.end());
  return runs[runs.size() / 2];
}

}  // namespace

const char* basis_name(Basis basis) {
  constexpr const char* kNames[kBases] = {"measured", "fitted", "extrapolated"};
  return kNames[size_t(basis)];
}

Basis basis_of_links(const Cluster& cluster) {
  return cluster.links_are_fitted ? Basis::kFitted : Basis::kExtrapolated;
}

std::string KernelTimes::name_of(const kernels::SlotCall& call, const kernels::KernelCall& kernel) {
  return cat(kernel.slot, kernel.gemm == nullptr ? "" : " ",
             kernel.gemm == nullptr ? "" : gemm_name(*kernel.gemm), " ", dtype_name(kernel.dtype),
             " ", int64_t(kernel.cost.flops), " FLOP ", int64_t(kernel.cost.bytes()), " bytes ",
             call.exec().threads, " threads");
}

void KernelTimes::read(const std::string& path) {
  if (!std::filesystem::exists(path)) return;
  const MappedFile file(path);
  std::string_view rest = file.text();
  for (int line = 1; !rest.empty(); ++line) {
    const std::string_view text = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), text.size() + 1));
    const size_t space = std::min(text.find(' '), text.size());
    const std::optional<double> seconds = parse_real(text.substr(0, space));
    if (!seconds || *seconds <= 0 || space + 1 >= text.size()) {
      throw DataError(cat(path, ":", line, ": want seconds, a space and the name of a kernel"));
    }
    measured_[std::string(text.substr(space + 1))] = *seconds;
  }
}

void KernelTimes::write(const std::string& path) const {
  std::string text;
  for (const auto& [name, seconds] : measured_) {
    text += cat(format_real(seconds), " ", name, "\n");
  }
  write_file_atomically(path, text);
}

KernelTime KernelTimes::of(const kernels::SlotCall& call) {
  const kernels::KernelCall kernel = described(call);
  const KernelTime modelled{.seconds = modelled_seconds(cluster_, kernel)};
  if (!measures_ && measured_.empty()) return modelled;
  const std::string name = name_of(call, kernel);
  auto found = measured_.find(name);
  if (found == measured_.end()) {
    if (!measures_) return modelled;
    found = measured_.emplace(name, measured_seconds(call)).first;
  }
  return {.seconds = found->second, .basis = Basis::kMeasured};
}

}  // namespace shale::models

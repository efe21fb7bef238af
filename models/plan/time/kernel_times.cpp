#include "shale/models/plan/time/kernel_times.h"

#include <algorithm>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/kernels/dry_run.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/mapped_file.h"

namespace shale::models {
namespace {

constexpr int kFewestRuns = 3, kMostRuns = 30;
// A kernel is not measured again when its runs have taken this many seconds.
constexpr double kEnoughSeconds = 0.05;
constexpr int kMostPlaces = 16;  // maximum calls of a kind of kernel that are measured in place
constexpr std::string_view kHost = "host before a kernel";

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

double median(std::vector<double> runs) {
  std::nth_element(runs.begin(), runs.begin() + std::ptrdiff_t(runs.size() / 2), runs.end());
  return runs[runs.size() / 2];
}

// Measures the processor time of one thread. Several threads may wait for each other, so their time
// is wall-clock time.
double seconds_of(const std::function<void()>& run, int threads) {
  const auto now = [threads] {
    timespec time{};
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
    return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
  };
  const double start = now();
  run();
  return now() - start;
}

// Returns the median duration of several runs. Runs once before, so that memory is mapped.
double seconds_at_once(const std::function<void()>& run, int threads) {
  run();
  std::vector<double> runs;
  double sum = 0;
  while (runs.size() < kFewestRuns || (sum < kEnoughSeconds && runs.size() < kMostRuns)) {
    runs.push_back(seconds_of(run, threads));
    sum += runs.back();
  }
  return median(std::move(runs));
}

}  // namespace

const char* basis_name(Basis basis) {
  constexpr const char* kNames[kBases] = {"measured", "fitted", "extrapolated"};
  return kNames[size_t(basis)];
}

Basis basis_of(const Cluster& cluster, comm::CollectiveOp op, const GroupSpread& group) {
  const bool is_fitted = cluster.links_are_fitted || fitted_link(cluster, op, group) != nullptr;
  return is_fitted ? Basis::kFitted : Basis::kExtrapolated;
}

std::string KernelTimes::name_of(const kernels::SlotCall& call, const kernels::KernelCall& kernel) {
  return cat(kernel.slot, kernel.gemm == nullptr ? "" : " ",
             kernel.gemm == nullptr ? "" : gemm_name(*kernel.gemm), " ", dtype_name(kernel.dtype),
             " ", int64_t(kernel.cost.flops), " FLOP ", int64_t(kernel.cost.bytes()), " bytes ",
             call.exec().threads, " threads", call.exec().tf32 ? " tf32" : "");
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
      throw DataError(cat(path, ":", line, ": expected seconds, a space and the name of a kernel"));
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

void KernelTimes::set_pass(Pass pass) {
  if (!measures_) return;  // several threads may share an object that does not measure
  pass_ = pass;
  if (pass == Pass::kInPlace) return;
  for (auto& [name, kind] : kinds_) {
    if (!kind.runs.empty()) measured_.emplace(name, median(std::move(kind.runs)));
  }
  kinds_.clear();
}

std::optional<double> KernelTimes::measured(const std::string& name, int threads,
                                            const std::function<void()>& run) {
  if (const auto found = measured_.find(name); found != measured_.end()) return found->second;
  if (!measures_ || pass_ == Pass::kLater) return std::nullopt;
  const kernels::DryRun::Pause real;
  const auto place = kinds_.find(name);
  if (pass_ == Pass::kVisit) {
    if (++kinds_[name].visits <= kMostPlaces) run();
    return std::nullopt;
  }
  if (pass_ == Pass::kAtOnce || place == kinds_.end()) {
    return measured_.emplace(name, seconds_at_once(run, threads)).first->second;
  }
  Kind& kind = place->second;
  if (std::ssize(kind.runs) < std::min(kind.visits, kMostPlaces)) {
    kind.runs.push_back(seconds_of(run, threads));
  }
  return median(kind.runs);
}

KernelTime KernelTimes::of(const kernels::SlotCall& call) {
  const kernels::KernelCall kernel = described(call);
  const KernelTime modelled{.seconds = modelled_seconds(cluster_, kernel)};
  if (!measures_ && measured_.empty()) return modelled;
  const int threads = call.exec().threads;
  const auto seconds = measured(name_of(call, kernel), threads, [&] { call.run(); });
  if (!seconds) return modelled;
  return {.seconds = crowded(*seconds, threads), .basis = Basis::kMeasured};
}

KernelTime KernelTimes::of_copy(size_t bytes) {
  if (measures_ || !measured_.empty()) {
    const auto seconds = measured(cat("copy of ", bytes, " bytes"), /*threads=*/1, [&] {
      if (copied_.size() < 2 * bytes) copied_.resize(2 * bytes);
      std::memcpy(copied_.data(), copied_.data() + bytes, bytes);
    });
    if (seconds) return {.seconds = crowded(*seconds, 1), .basis = Basis::kMeasured};
  }
  const kernels::Cost cost{.read_bytes = double(bytes), .written_bytes = double(bytes)};
  return {.seconds = kernel_seconds(cluster_, cost, DType::kF32, KernelKind::kOther)};
}

double KernelTimes::host_seconds(int threads) const {
  const auto found = measured_.find(cat(kHost, ", ", threads, " threads"));
  return found == measured_.end() ? 0 : crowded(found->second, threads);
}

void KernelTimes::set_host_seconds(int threads, double seconds) {
  measured_.emplace(cat(kHost, ", ", threads, " threads"), seconds);
}

}  // namespace shale::models

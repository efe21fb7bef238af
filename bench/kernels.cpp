// Times every CPU kernel at the sizes of a GPT-2 step, against what the machine can do:
// bench_kernels --filter gemm/forward --dtype bf16
#include <benchmark/benchmark.h>
#include <omp.h>

#include <cstdio>
#include <optional>
#include <regex>

#include "bench/support/kernel_cases.h"
#include "bench/support/machine.h"
#include "bench/support/peaks.h"
#include "bench/support/table.h"
#include "bench/support/timing.h"
#include "comm/world.h"
#include "runtime/base/config.h"
#include "runtime/base/cpu_affinity.h"
#include "runtime/base/error.h"

namespace shale::bench {
namespace {

struct BenchConfig {
  std::string filter;
  std::string dtype = "all";
  int threads = 0;
  double min_time_s = 0.3;
  bool list = false;
  std::string json;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add("filter", c.filter, "only cases whose name matches", {.help = {.metavar = "REGEX"}});
  spec.add_choice("dtype", c.dtype, {"all", "fp32", "bf16"}, "only cases of this dtype");
  spec.add("threads", c.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all CPUs that may be used"}});
  spec.add("min-time", c.min_time_s, "time spent on a case at least",
           {.min = 0, .exclude_min = true, .help = {.metavar = "SECONDS", .unit = "s"}});
  spec.add("list", c.list, "print the names of the cases and end");
  spec.add("json", c.json, "write the rows there", {.help = {.metavar = "FILE"}});
  spec.example("bench_kernels --threads 2 --json kernels.json");
  spec.example("bench_kernels --filter 'gemm/.*/1024' --dtype bf16");
  spec.example("bench_kernels --filter '^(adamw|sum_squares)/' --min-time 2");
}

// A case while Google Benchmark runs it: the library calls the body several times, with more
// iterations each time, until they take the minimal time. The last call's samples count.
class RunningCase {
 public:
  RunningCase(const KernelCase& kernel_case, const KernelBench& bench)
      : case_(kernel_case), bench_(bench) {}

  const KernelCase& kernel_case() const { return case_; }
  const Cost& cost() const { return prepared_->cost; }
  const Samples& ours() const { return ours_; }
  const Samples& vendor() const { return vendor_; }
  const std::string& error() const { return error_; }  // empty: none
  void release() { prepared_.reset(); }

  void run(benchmark::State& state) {
    try {
      measure(state);
    } catch (const std::exception& failure) {  // the library is not made to be thrown through
      error_ = failure.what();
      state.SkipWithError(failure.what());
    }
  }

 private:
  void measure(benchmark::State& state) {
    if (!prepared_) prepare();
    ours_ = vendor_ = {};
    for ([[maybe_unused]] auto _ : state) {
      const double seconds = time_once(prepared_->run);
      state.SetIterationTime(seconds);
      ours_.add(seconds);
      // The sides take turns: a disturbance hits both.
      if (prepared_->vendor) vendor_.add(time_once(prepared_->vendor));
    }
  }

  void prepare() {
    prepared_ = case_.prepare(bench_);
    for (int i = 0; i < 2; ++i) {  // code is compiled, memory is touched
      prepared_->run();
      if (prepared_->vendor) prepared_->vendor();
    }
  }

  const KernelCase& case_;
  const KernelBench& bench_;
  std::optional<PreparedCase> prepared_;
  Samples ours_, vendor_;
  std::string error_;
};

// Prints a line per case as it ends and collects the rows.
class RowReporter : public benchmark::BenchmarkReporter {
 public:
  RowReporter(const Peaks& peaks, size_t name_width) : peaks_(peaks), width_(int(name_width)) {}

  void set_current(RunningCase* current) { current_ = current; }
  const Json& rows() const { return rows_; }
  int errors() const { return errors_; }

  bool ReportContext(const Context&) override {
    std::printf("%-*s  %10s  %10s  %9s  %-7s  %7s  %10s  %8s\n", width_, "kernel", "median us",
                "min us", "speed", "", "% peak", "oneDNN us", "/ ours");
    return true;
  }

  // The library's own summary of the runs has neither median nor minimum, nor the other side.
  void ReportRuns(const std::vector<Run>&) override {
    if (current_->error().empty()) {
      report_row();
    } else {
      ++errors_;
      std::printf("%-*s  error: %s\n", width_, current_->kernel_case().name.c_str(),
                  current_->error().c_str());
    }
    current_->release();
    std::fflush(stdout);
  }

 private:
  void report_row() {
    const KernelCase& kernel = current_->kernel_case();
    const Cost& cost = current_->cost();
    const double median = current_->ours().median();
    const bool compute = peaks_.compute_bound(cost, kernel.dtype);
    const double speed = (compute ? cost.flops : cost.bytes()) / median / 1e9;
    const double of_peak = peaks_.bound_seconds(cost, kernel.dtype) / median;
    Json row = {{"name", kernel.name},
                {"slot", kernel.slot},
                {"dtype", std::string(dtype_name(kernel.dtype))},
                {"runs", current_->ours().seconds.size()},
                {"time_us", median * 1e6},
                {"time_us_min", current_->ours().min() * 1e6},
                {"gflop", cost.flops / 1e9},
                {"gbytes", cost.bytes() / 1e9},
                {"speed", speed},
                {"unit", compute ? "GFLOP/s" : "GB/s"},
                {"of_peak", of_peak}};
    std::printf("%-*s  %10s  %10s  %9s  %-7s  %7s", width_, kernel.name.c_str(),
                short_number(median * 1e6).c_str(),
                short_number(current_->ours().min() * 1e6).c_str(), short_number(speed).c_str(),
                compute ? "GFLOP/s" : "GB/s", percent(of_peak).c_str());
    if (!current_->vendor().empty()) {
      const double ratio = paired_ratio(current_->vendor(), current_->ours());
      row["vendor_us"] = current_->vendor().median() * 1e6;
      row["vendor_us_min"] = current_->vendor().min() * 1e6;
      row["vendor_over_ours"] = ratio;
      std::printf("  %10s  %8s", short_number(current_->vendor().median() * 1e6).c_str(),
                  percent(ratio).c_str());
    }
    std::printf("\n");
    rows_.push_back(std::move(row));
  }

  const Peaks& peaks_;
  int width_;
  RunningCase* current_ = nullptr;
  Json rows_ = Json::array();
  int errors_ = 0;
};

std::vector<KernelCase> chosen_cases(const BenchConfig& config) {
  std::vector<DType> dtypes;
  if (config.dtype != "bf16") dtypes.push_back(DType::kF32);
  if (config.dtype != "fp32") dtypes.push_back(DType::kBF16);
  std::vector<KernelCase> cases = kernel_cases(dtypes);
  try {
    const std::regex filter(config.filter);
    std::erase_if(cases, [&](const KernelCase& c) { return !std::regex_search(c.name, filter); });
  } catch (const std::regex_error& error) {
    throw ConfigError(cat("--filter: ", config.filter, " is no regular expression: ",
                          error.what()));
  }
  if (cases.empty()) {
    throw ConfigError(cat("--filter: no case matches ", config.filter,
                          "; --list prints the names"));
  }
  return cases;
}

void print_peaks(const Peaks& peaks) {
  std::printf("peaks measured now: copy %s GB/s, triad %s GB/s, update %s GB/s, "
              "read %s GB/s",
              fixed(peaks.copy / 1e9, 1).c_str(), fixed(peaks.triad / 1e9, 1).c_str(),
              fixed(peaks.update / 1e9, 1).c_str(), fixed(peaks.read / 1e9, 1).c_str());
  for (const auto& [dtype, flops] : peaks.gemm) {
    std::printf(", %s products %s GFLOP/s", std::string(dtype_name(dtype)).c_str(),
                fixed(flops / 1e9, 0).c_str());
  }
  std::printf("\n%% peak: of the time that products need at oneDNN's peak, or bytes at the "
              "bandwidth\n\n");
}

Json peaks_json(const Peaks& peaks) {
  Json json = {{"copy_gb_s", peaks.copy / 1e9},
               {"triad_gb_s", peaks.triad / 1e9},
               {"update_gb_s", peaks.update / 1e9},
               {"read_gb_s", peaks.read / 1e9}};
  for (const auto& [dtype, flops] : peaks.gemm) {
    json["gemm_gflop_s_" + std::string(dtype_name(dtype))] = flops / 1e9;
  }
  return json;
}

void register_case(RunningCase& running, RowReporter& reporter, double min_time_s) {
  const auto body = [&running, &reporter](benchmark::State& state) {
    reporter.set_current(&running);
    running.run(state);
  };
  benchmark::RegisterBenchmark(running.kernel_case().name.c_str(), body)
      ->UseManualTime()
      ->MinTime(min_time_s);
}

int run(int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_kernels", "times the CPU kernels against what the machine can do");
  describe(spec, config);
  const ParseResult parsed = parse_config(spec, argc, argv);
  if (parsed.should_exit) {
    std::fputs(parsed.output.c_str(), stdout);
    return 0;
  }
  const std::vector<KernelCase> cases = chosen_cases(config);
  if (config.list) {
    for (const KernelCase& one : cases) std::printf("%s\n", one.name.c_str());
    return 0;
  }
  const Machine machine = describe_machine();
  config.threads = resolve_threads(config.threads, /*local_ranks=*/1);
  omp_set_num_threads(config.threads);  // for oneDNN's own use; kernels name theirs
  std::printf("%s, %d threads\n", summary(machine).c_str(), config.threads);
  std::fflush(stdout);
  const Peaks peaks = measure_peaks(config.min_time_s);
  print_peaks(peaks);

  size_t name_width = 0;
  for (const KernelCase& one : cases) name_width = std::max(name_width, one.name.size());
  RowReporter reporter(peaks, name_width);
  const KernelBench bench(config.threads);
  std::vector<std::unique_ptr<RunningCase>> running;
  for (const KernelCase& one : cases) {
    running.push_back(std::make_unique<RunningCase>(one, bench));
    register_case(*running.back(), reporter, config.min_time_s);
  }
  int library_argc = 1;  // its own flags are not ours
  benchmark::Initialize(&library_argc, argv);
  benchmark::RunSpecifiedBenchmarks(&reporter, ".");
  benchmark::Shutdown();
  write_results(config.json, "bench_kernels", machine,
                {{"threads", config.threads},
                 {"min_time_s", config.min_time_s},
                 {"peaks", peaks_json(peaks)}},
                reporter.rows());
  if (reporter.errors() > 0) {
    throw InternalError(cat(reporter.errors(), " of ", cases.size(), " cases failed"));
  }
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  // One process without ranks, but with the errors and exit codes of the other programs.
  return shale::comm::run(argc, argv,
                          [&](shale::comm::World&) { return shale::bench::run(argc, argv); });
}

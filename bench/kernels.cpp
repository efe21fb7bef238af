// Times every kernel at the sizes of a GPT-2 step, relative to the machine's peaks: bench_kernels
// --device cuda --filter gemm/forward --dtype bf16
#include <algorithm>
#include <cstdio>
#include <optional>
#include <regex>
#include <set>

#include "shale/base/config.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/bench/support/foreign.h"
#include "shale/bench/support/gemm_tuner.h"
#include "shale/bench/support/kernel_cases.h"
#include "shale/bench/support/machine.h"
#include "shale/bench/support/measure.h"
#include "shale/bench/support/peaks.h"
#include "shale/bench/support/program.h"
#include "shale/bench/support/table.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::bench {
namespace {

struct BenchConfig {
  std::string device = "cpu";
  std::string filter;
  KernelFamily family = KernelFamily::kOfDevice;
  std::string dtype = "all";
  int threads = 0;
  double min_time_s = 0.3;
  bool list = false;
  std::string json;
  std::string tune;
  std::string foreign;
};

void describe(ConfigSpec& spec, BenchConfig& c) {
  spec.add_choice(
      "device", c.device, device_names(),
      "device of the kernels; emu: GPU kernels emulated on the CPU, to test the benchmark");
  spec.add("filter", c.filter, "regular expression of case names", {.help = {.metavar = "REGEX"}});
  spec.add_choice("dtype", c.dtype, {"all", "fp32", "bf16", "fp16"},
                  "measure only cases of this dtype; all: fp32 and bf16");
  spec.add_choice("family", c.family,
                  {{"all", KernelFamily::kOfDevice},
                   {"portable", KernelFamily::kPortable},
                   {"hopper", KernelFamily::kHopper},
                   {"vendor", KernelFamily::kVendor}},
                  "measure only cases with these GPU kernels; portable: kernels that run on every "
                  "GPU; hopper: kernels for compute capability 9.0; vendor: cuBLASLt");
  spec.add("threads", c.threads, "CPU threads",
           {.min = 1, .max = 4096, .help = {.default_text = "all CPUs that may be used"}});
  spec.add("min-time", c.min_time_s, "minimum time to measure a case",
           {.min = 0, .exclude_min = true, .help = {.metavar = "SECONDS", .unit = "s"}});
  spec.add("list", c.list, "print the names of the cases and exit");
  spec.add("json", c.json, "JSON results file", {.is_path = true, .help = {.metavar = "FILE"}});
  spec.add("tune", c.tune,
           "time all GEMM implementations, and write the fastest to this file, usually "
           "kernels/gemm_table.inc",
           {.is_path = true, .help = {.metavar = "FILE"}});
  spec.add("foreign", c.foreign,
           "function in a .cu file to compare with the kernel that --filter selects",
           {.help = {.metavar = "FILE:FUNCTION"}});
  spec.example("bench_kernels --threads 2 --json kernels.json");
  spec.example("bench_kernels --device cuda --filter 'attention.*/t8192' --dtype bf16");
  spec.example("bench_kernels --device cuda --family hopper --filter ffn");
  spec.example("bench_kernels --filter '^(adamw|sum_squares)/' --min-time 2");
}

// Prints a line per case and collects the rows.
class Report {
 public:
  Report(const BenchDevice& device, const Peaks& peaks, size_t name_width)
      : vendor_(device.vendor_name()),
        // On a GPU the units are TFLOP/s and TB/s, otherwise GFLOP/s and GB/s.
        tera_(device.device().type == DeviceType::kCuda),
        peaks_(peaks),
        width_(int(name_width)) {
    std::printf("%-*s  %8s  %8s  %10s  %10s  %9s  %-7s  %7s  %10s  %8s\n", width_, "kernel",
                "GFLOP", "MB", "median us", "min us", "speed", "", "% peak",
                vendor_.empty() ? "" : (vendor_ + " us").c_str(), vendor_.empty() ? "" : "/ ours");
  }

  const std::vector<JsonText>& rows() const { return rows_; }
  int errors() const { return errors_; }

  // foreign: name of the user's kernel in the comparison. difference: result of
  // ForeignKernel::compare().
  void add(const KernelCase& kernel, const kernels::Cost& cost, const Measured& measured,
           const std::string& foreign, double difference) {
    JsonText row;
    row.add("name", kernel.name).add("slot", kernel.slot).add("dtype", dtype_name(kernel.dtype));
    row.add("family", family_name(kernel.family));
    row.add("runs", int64_t(measured.ours.seconds.size()));
    add_times(row, kernel.name, kernel.dtype, cost, measured.ours);
    if (!measured.vendor.empty()) {
      const double ratio = paired_ratio(measured.vendor, measured.ours);
      row.add("vendor", vendor_).add("vendor_us", measured.vendor.median() * 1e6);
      row.add("vendor_us_min", measured.vendor.min() * 1e6).add("vendor_over_ours", ratio);
      std::printf("  %10s  %8s", short_number(measured.vendor.median() * 1e6).c_str(),
                  percent(ratio).c_str());
    }
    if (!measured.foreign.empty()) {
      const double ratio = paired_ratio(measured.foreign, measured.ours);
      JsonText other;
      other.add("name", foreign).add("over_ours", ratio).add("difference", difference);
      std::printf("\n");
      add_times(other, foreign, kernel.dtype, cost, measured.foreign);
      std::printf("  %10s  %8s  differs by %.1e", "", percent(ratio).c_str(), difference);
      row.add("foreign", other);
    }
    std::printf("\n");
    std::fflush(stdout);
    rows_.push_back(std::move(row));
  }

  void add_error(const KernelCase& kernel, const std::string& what) {
    ++errors_;
    JsonText row;
    row.add("name", kernel.name).add("slot", kernel.slot).add("dtype", dtype_name(kernel.dtype));
    row.add("family", family_name(kernel.family)).add("error", what);
    rows_.push_back(std::move(row));
    std::printf("%-*s  error: %s\n", width_, kernel.name.c_str(), what.c_str());
    std::fflush(stdout);
  }

 private:
  // Prints a line without its end, and adds its values to `row`.
  void add_times(JsonText& row, const std::string& name, DType dtype, const kernels::Cost& cost,
                 const Samples& samples) const {
    const double median = samples.median();
    const bool compute = peaks_.compute_bound(cost, dtype) || cost.bytes() == 0;
    const double speed = (compute ? cost.flops : cost.bytes()) / median / (tera_ ? 1e12 : 1e9);
    const char* unit = tera_ ? (compute ? "TFLOP/s" : "TB/s") : (compute ? "GFLOP/s" : "GB/s");
    row.add("time_us", median * 1e6).add("time_us_min", samples.min() * 1e6);
    row.add("gflop", cost.flops / 1e9).add("gbytes", cost.bytes() / 1e9);
    row.add("speed", speed).add("unit", unit);
    std::printf("%-*s  %8s  %8s  %10s  %10s  %9s  %-7s", width_, name.c_str(),
                cost.flops > 0 ? short_number(cost.flops / 1e9).c_str() : "",
                short_number(cost.bytes() / 1e6).c_str(), short_number(median * 1e6).c_str(),
                short_number(samples.min() * 1e6).c_str(), short_number(speed).c_str(), unit);
    const double bound = peaks_.bound_seconds(cost, dtype);
    if (bound > 0) row.add("of_peak", bound / median);
    std::printf("  %7s", bound > 0 ? percent(bound / median).c_str() : "");
  }

  std::string vendor_;
  bool tera_;
  const Peaks& peaks_;
  int width_;
  std::vector<JsonText> rows_;
  int errors_ = 0;
};

std::vector<DType> dtypes_of(const std::string& name) {
  if (name == "fp32") return {DType::kF32};
  if (name == "bf16") return {DType::kBF16};
  if (name == "fp16") return {DType::kF16};
  return {DType::kF32, DType::kBF16};
}

std::vector<KernelCase> chosen_cases(const BenchConfig& config) {
  const std::vector<DType> dtypes = dtypes_of(config.dtype);
  std::vector<KernelCase> cases = kernel_cases(device_named(config.device).type, dtypes);
  if (config.family != KernelFamily::kOfDevice) {
    std::erase_if(cases, [&](const KernelCase& c) { return c.family != config.family; });
  }
  try {
    const std::regex filter(config.filter);
    std::erase_if(cases, [&](const KernelCase& c) {
      return !std::regex_search(c.name, filter) || std::ranges::count(dtypes, c.dtype) == 0;
    });
  } catch (const std::regex_error& error) {
    throw ConfigError(
        cat("--filter: ", config.filter, " is not a regular expression: ", error.what()));
  }
  if (cases.empty()) {
    throw ConfigError(
        cat("--filter: no case of family ",
            config.family == KernelFamily::kOfDevice ? "all" : family_name(config.family),
            " matches '", config.filter, "'; --list prints the names"));
  }
  return cases;
}

void print_peaks(const Peaks& peaks) {
  if (peaks.copy == 0) return;
  std::printf("peaks measured now: copy %s GB/s", fixed(peaks.copy / 1e9, 1).c_str());
  if (peaks.triad > 0) {
    std::printf(", triad %s GB/s, update %s GB/s, read %s GB/s",
                fixed(peaks.triad / 1e9, 1).c_str(), fixed(peaks.update / 1e9, 1).c_str(),
                fixed(peaks.read / 1e9, 1).c_str());
  }
  for (const auto& [dtype, flops] : peaks.gemm) {
    std::printf(", %s GEMMs %s GFLOP/s", std::string(dtype_name(dtype)).c_str(),
                fixed(flops / 1e9, 0).c_str());
  }
  std::printf(
      "\n%% peak: time of the FLOP at the GEMM peak, or of the bytes at the copy bandwidth, "
      "divided by the kernel's time\n\n");
}

JsonText peaks_json(const Peaks& peaks) {
  JsonText json;
  const auto add = [&](const char* name, double value) {
    if (value > 0) json.add(name, value / 1e9);
  };
  add("copy_gb_s", peaks.copy);
  add("triad_gb_s", peaks.triad);
  add("update_gb_s", peaks.update);
  add("read_gb_s", peaks.read);
  for (const auto& [dtype, flops] : peaks.gemm) {
    add(cat("gemm_gflop_s_", dtype_name(dtype)).c_str(), flops);
  }
  return json;
}

void write_rows(const BenchConfig& config, const Machine& machine, const BenchDevice& device,
                const Peaks& peaks, const std::vector<JsonText>& rows) {
  if (config.json.empty()) return;
  JsonText options;
  options.add("device", to_string(device.device())).add("threads", device.threads());
  options.add("min_time_s", config.min_time_s).add("vendor", device.vendor_name());
  options.add("peaks", peaks_json(peaks));
  JsonText document;
  document.add("program", "bench_kernels").add("machine", machine_json(machine));
  document.add("options", options).add("rows", rows);
  write_file_atomically(config.json, document.text() + "\n");
}

// Returns true if the device still runs kernels. Some errors, such as an illegal address, break the
// device until the program ends; others are reported once.
bool still_works(const BenchDevice& device) {
  for (int tries = 2; tries > 0; --tries) {
    try {
      device.synchronize();
      return true;
    } catch (const Error&) {
    }
  }
  return false;
}

void tune(BenchDevice& device, const Machine& machine, const BenchConfig& config) {
  const std::string rows =
      tune_gemm(device, tuned_classes(), config.min_time_s, [](const std::string& row) {
        std::fputs(row.c_str(), stdout);
        std::fflush(stdout);
      });
  const std::string head =
      cat("// Written by `bench_kernels --device cuda --tune FILE`: the fastest kernel for each\n"
          "// group of GEMMs with one dtype, one layout and sizes of the same binary digits.\n"
          "// Measured on ",
          machine.gpu, ", ", device.vendor_name(), ".\n",
          "// {dtype, a and b transposed, binary digits of m, n, k}, tile, splits,\n"
          "// library faster: plain, GELU\n");
  write_file_atomically(config.tune, head + rows);
}

// Removes cases that the device does not support, and reports them.
void drop_missing(std::vector<KernelCase>& cases, BenchDevice& device) {
  std::string missing;
  for (const std::string& slot : drop_unfilled(cases, device.device().type)) missing += " " + slot;
  if (!missing.empty()) std::printf("left out, no kernel for this device:%s\n", missing.c_str());
  for (const std::string& family : drop_missing_families(cases, device)) {
    std::printf("left out, %s\n", family.c_str());
  }
  std::fflush(stdout);
}

// Returns the compiled function of --foreign, nullopt without the flag. It is compared
// with one kernel in one dtype, which --filter and --dtype select.
std::optional<ForeignKernel> foreign_kernel(const BenchConfig& config,
                                            const std::vector<KernelCase>& cases) {
  if (config.foreign.empty()) return {};
  std::set<std::string> slots;
  for (const KernelCase& one : cases) slots.insert(one.slot);
  if (slots.size() > 1 || config.dtype == "all") {
    throw ConfigError(cat("--foreign needs --filter for one kernel, and --dtype fp32, bf16 or fp16",
                          " (found ", slots.size(), " kernels, --dtype ", config.dtype, ")"));
  }
  return std::optional<ForeignKernel>(std::in_place, config.foreign,
                                      device_named(config.device).type);
}

int run(int argc, char** argv) {
  BenchConfig config;
  ConfigSpec spec("bench_kernels", "compares the kernels with the machine's peak");
  describe(spec, config);
  if (parse_or_print(spec, argc, argv)) return 0;
  std::vector<KernelCase> cases = chosen_cases(config);
  if (config.list) {
    for (const KernelCase& one : cases) std::printf("%s\n", one.name.c_str());
    return 0;
  }
  const std::optional<ForeignKernel> foreign = foreign_kernel(config, cases);
  Machine machine = describe_machine();
  const auto device = make_bench_device(device_named(config.device),
                                        resolve_threads(config.threads, /*local_ranks=*/1));
  device->describe(machine);
  std::printf("%s, %d threads\n", summary(machine).c_str(), device->threads());
  if (!config.tune.empty()) {
    tune(*device, machine, config);
    return 0;
  }
  if (const std::string why = missing_family(config.family, *device); !why.empty()) {
    throw UnavailableError(cat("--family ", family_name(config.family), ": ", why));
  }
  drop_missing(cases, *device);
  const Peaks peaks = device->measure_peaks(config.min_time_s);
  print_peaks(peaks);

  const std::string foreign_name = foreign ? foreign->name() : "";
  size_t name_width = foreign_name.size();
  for (const KernelCase& one : cases) name_width = std::max(name_width, one.name.size());
  Report report(*device, peaks, name_width);
  const KernelBench bench(*device);
  for (const KernelCase& one : cases) {
    try {
      PreparedCase prepared = one.prepare(bench);
      const double difference = foreign ? foreign->compare(bench, prepared) : 0;
      if (foreign) prepared.foreign = foreign->calls(bench, prepared);
      report.add(one, prepared.cost, measure(*device, prepared, config.min_time_s), foreign_name,
                 difference);
    } catch (const Error& error) {
      report.add_error(one, error.what());
    }
    write_rows(config, machine, *device, peaks, report.rows());
    if (report.errors() > 0 && !still_works(*device)) {
      throw InternalError(cat("the device runs no kernels since ", one.name, " failed; ",
                              report.rows().size(), " of ", cases.size(), " cases were tried"));
    }
  }
  if (report.errors() > 0) {
    throw InternalError(cat(report.errors(), " of ", cases.size(), " cases failed"));
  }
  return 0;
}

}  // namespace
}  // namespace shale::bench

int main(int argc, char** argv) {
  return shale::bench::run_program([&] { return shale::bench::run(argc, argv); });
}

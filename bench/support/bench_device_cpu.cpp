// CPU benchmarks, with oneDNN for comparison.
#include <omp.h>

#include "shale/base/error.h"
#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/buffer.h"
#include "shale/bench/support/cpu_peaks.h"
#include "shale/bench/support/timing.h"
#include "shale/bench/support/vendor_matmul.h"
#include "shale/kernels/registry.h"

namespace shale::bench {
namespace {

class CpuBench final : public BenchDevice {
 public:
  explicit CpuBench(int threads) : BenchDevice(make_cpu_backend(), threads) {
    omp_set_num_threads(threads);  // sets oneDNN's threads; Shale's kernels have their own setting
    kernels::register_cpu_kernels();
  }

  double seconds_per_call(int calls, const std::function<void()>& fn) override {
    return time_once([&] {
             for (int i = 0; i < calls; ++i) fn();
           }) /
           calls;
  }
  int64_t rotation_bytes() const override { return several_caches(last_level_cache_bytes()); }
  Peaks measure_peaks(double seconds) override { return measure_cpu_peaks(seconds); }

  std::string vendor_name() const override { return "oneDNN"; }
  VendorProduct vendor_product(const MatmulSpec& spec) override {
    struct State {
      explicit State(const MatmulSpec& s) : matmul(s), scratch(matmul.scratch_bytes()) {}
      VendorMatmul matmul;
      Buffer scratch;
    };
    try {
      return [state = std::make_shared<State>(spec)](const void* a, const void* b, void* c) {
        state->matmul.run(a, b, c, state->scratch.data());
      };
    } catch (const UnavailableError&) {
      return nullptr;  // this CPU does not support the dtype
    }
  }
  void describe(Machine& machine) const override { machine.onednn = onednn_version(); }
};

}  // namespace

std::unique_ptr<BenchDevice> make_cpu_bench(int threads) {
  return std::make_unique<CpuBench>(threads);
}

}  // namespace shale::bench

// Emulator benchmarks: times are meaningless, but every part of the benchmark runs on any machine.
#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/timing.h"

namespace shale::bench {
namespace {

class EmuBench final : public BenchDevice {
 public:
  EmuBench(const Device& device, int threads) : BenchDevice(make_emu_backend(device), threads) {}

  double seconds_per_call(int calls, const std::function<void()>& fn) override {
    return time_once([&] {
             for (int i = 0; i < calls; ++i) fn();
             synchronize();
           }) /
           calls;
  }
  int64_t rotation_bytes() const override { return 1; }  // the emulator has no caches
  Peaks measure_peaks(double) override { return {}; }    // the emulator has no peaks
  void describe(Machine&) const override {}
};

}  // namespace

std::unique_ptr<BenchDevice> make_emu_bench(const Device& device, int threads) {
  return std::make_unique<EmuBench>(device, threads);
}

}  // namespace shale::bench

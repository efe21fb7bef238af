// GPU benchmarks. Compiled only in builds with CUDA.
#include <cuda_runtime.h>

#include "shale/bench/support/bench_device.h"
#include "shale/bench/support/timed_event_cuda.h"
#include "shale/bench/support/timing.h"
#include "shale/runtime/kernel_check/operands.h"
#ifdef SHALE_HAVE_CUBLASLT
#include "shale/kernels/cuda/gemm/cublaslt/library.h"
#include "shale/kernels/cuda/gemm/cublaslt/matmul.h"
#endif
#include "shale/base/error.h"
#include "shale/kernels/simt/cuda/cuda_error.h"

namespace shale::bench {
namespace {

using kernels::cuda::check;

class CudaBench final : public BenchDevice {
 public:
  explicit CudaBench(const Device& device) : BenchDevice(make_cuda_backend(device), 1) {
    check(cudaGetDeviceProperties(&properties_, device.index), "cudaGetDeviceProperties");
  }

  double seconds_per_call(int calls, const std::function<void()>& fn) override {
    const auto queue = static_cast<cudaStream_t>(stream());
    start_.record(queue);
    for (int i = 0; i < calls; ++i) fn();
    end_.record(queue);
    return end_.seconds_since(start_) / calls;
  }
  // Events have a resolution of about half a microsecond, and the first launch on an idle device
  // waits for the host. In a sample of two milliseconds neither matters.
  double shortest_sample_s() const override { return 2e-3; }

  int64_t rotation_bytes() const override { return several_caches(properties_.l2CacheSize); }
  Peaks measure_peaks(double seconds) override;
  std::string vendor_name() const override { return "CUDA"; }
  VendorProduct vendor_product(const MatmulSpec& spec) override;
  std::function<void(const kernels::GemmArgs&)> vendor_gemm() override;
  std::function<void(const kernels::Fp8GemmArgs&)> vendor_fp8_gemm(
      const kernels::Fp8GemmArgs& like) override;
  void describe(Machine& machine) const override;

 private:
  double copy_speed(double seconds);
  double gemm_speed(DType dtype, double seconds);  // returns 0 without the library
  template <typename Fn>
  Samples sample(double seconds, int calls, const Fn& fn);

  cudaDeviceProp properties_{};
  DeviceWorkspace workspace_{*this};
  TimedEvent start_, end_;
};

template <typename Fn>
Samples CudaBench::sample(double seconds, int calls, const Fn& fn) {
  seconds_per_call(calls, fn);
  Samples samples;
  const Clock::time_point begin = Clock::now();
  while (samples.seconds.size() < 5 || seconds_since(begin) < seconds) {
    samples.add(seconds_per_call(calls, fn));
  }
  return samples;
}

// Returns the bytes per second, read plus written, of a copy within device memory. The copied data
// is larger than the caches.
double CudaBench::copy_speed(double seconds) {
  constexpr size_t kBytes = size_t{1} << 30;
  const DeviceMemory from(*this, kBytes), to(*this, kBytes);
  const auto copy = [&] { backend().copy(to.data(), from.data(), kBytes, stream()); };
  return 2.0 * double(kBytes) / sample(seconds, 4, copy).median();
}

double CudaBench::gemm_speed(DType dtype, double seconds) {
  const int64_t n = dtype == DType::kF32 ? 4096 : 8192;
  const MatmulSpec spec{.m = n,
                        .n = n,
                        .k = n,
                        .lda = n,
                        .ldb = n,
                        .ldc = n,
                        .b_transposed = true,
                        .in = dtype,
                        .out = dtype};
  const VendorProduct product = vendor_product(spec);
  if (!product) return 0;
  Operands operands(*this);  // random values; zeros would draw less power and run faster
  const View a = operands.floats(dtype, {n, n}), b = operands.floats(dtype, {n, n});
  const View c = operands.zeros(dtype, {n, n});
  return spec.flops() / sample(seconds, 2, [&] { product(a.data, b.data, c.data); }).median();
}

Peaks CudaBench::measure_peaks(double seconds) {
  Peaks peaks;
  peaks.copy = copy_speed(seconds);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16}) {
    const double flops = gemm_speed(dtype, seconds);
    if (flops > 0) peaks.gemm[dtype] = flops;
  }
  return peaks;
}

VendorProduct CudaBench::vendor_product([[maybe_unused]] const MatmulSpec& spec) {
#ifdef SHALE_HAVE_CUBLASLT
  namespace lt = kernels::cuda::cublaslt;
  if (lt::library() == nullptr) return nullptr;
  kernels::GemmProblem problem{.m = spec.m, .n = spec.n, .k = spec.k};
  problem.a = {.dtype = spec.in, .ld = spec.lda, .transposed = spec.a_transposed};
  problem.b = {.dtype = spec.in, .ld = spec.ldb, .transposed = spec.b_transposed};
  problem.c = {.dtype = spec.out, .ld = spec.ldc};
  problem.accumulate = spec.accumulate;
  const Exec exec{.device = device(), .stream = stream(), .workspace = &workspace_};
  return [problem, exec](const void* a, const void* b, void* c) mutable {
    problem.a.data = const_cast<void*>(a);
    problem.b.data = const_cast<void*>(b);
    problem.c.data = c;
    if (!lt::matmul(exec, problem)) {
      throw UnavailableError("cuBLASLt has no algorithm for this GEMM");
    }
  };
#else
  return nullptr;
#endif
}

std::function<void(const kernels::GemmArgs&)> CudaBench::vendor_gemm() {
#ifdef SHALE_HAVE_CUBLASLT
  namespace lt = kernels::cuda::cublaslt;
  if (lt::library() == nullptr) return nullptr;
  const Exec exec{.device = device(), .stream = stream(), .workspace = &workspace_};
  return [exec](const kernels::GemmArgs& args) {
    if (!lt::matmul(exec, kernels::gemm_problem(args))) {
      throw UnavailableError("cuBLASLt has no algorithm for this GEMM with this epilogue");
    }
  };
#else
  return nullptr;
#endif
}

std::function<void(const kernels::Fp8GemmArgs&)> CudaBench::vendor_fp8_gemm(
    [[maybe_unused]] const kernels::Fp8GemmArgs& like) {
#ifdef SHALE_HAVE_CUBLASLT
  namespace lt = kernels::cuda::cublaslt;
  if (lt::library() == nullptr) return nullptr;
  const Exec exec{.device = device(), .stream = stream(), .workspace = &workspace_};
  if (!lt::has_algorithm(exec, like)) return nullptr;
  return [exec](const kernels::Fp8GemmArgs& args) { lt::matmul(exec, args); };
#else
  return nullptr;
#endif
}

void CudaBench::describe(Machine& machine) const {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  const auto version = [](int number) { return cat(number / 1000, ".", number % 1000 / 10); };
  machine.gpu = cat(properties_.name, ", ", properties_.multiProcessorCount, " SMs, ",
                    format_bytes(double(properties_.totalGlobalMem)));
  machine.cuda = cat("runtime ", version(runtime), ", driver for ", version(driver));
#ifdef SHALE_HAVE_CUBLASLT
  machine.cuda += ", cuBLASLt " + kernels::cuda::cublaslt::version();
#endif
}

}  // namespace

std::unique_ptr<BenchDevice> make_cuda_bench(const Device& device) {
  return std::make_unique<CudaBench>(device);
}

}  // namespace shale::bench

// y = tanh(x * scale + bias) * sigmoid(gate) in one kernel, in plain CUDA, to be timed beside
// Shale's fused() of the same five ops: bench_kernels --foreign gate.cu:launch. No program links
// it.
#include <cstdint>

__global__ void gate_kernel(const float* x, const float* scale, const float* bias,
                            const float* gate, float* y, int64_t n, int64_t cols) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int64_t col = i % cols;
  y[i] = tanhf(x[i] * scale[col] + bias[col]) / (1 + __expf(-gate[i]));
}

extern "C" void launch(const void* const* in, void* const* out, const int64_t* shape,
                       cudaStream_t stream) {
  const int64_t n = shape[0] * shape[1];
  const auto input = [in](int i) { return static_cast<const float*>(in[i]); };
  gate_kernel<<<unsigned((n + 255) / 256), 256, 0, stream>>>(
      input(0), input(1), input(2), input(3), static_cast<float*>(out[0]), n, shape[1]);
}

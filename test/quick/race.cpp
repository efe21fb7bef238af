// Runs a kernel in the emulator, with and without the barrier that it needs, and prints what the
// emulator finds. Exits with 0 if it finds the race without the barrier, and nothing with it.
#include <cstdio>
#include <vector>

#include "shale/kernels/simt/engine/fault.h"
#include "shale/kernels/simt/simt.h"

namespace shale::kernels::emu {
namespace {

constexpr int kThreads = 128;

struct Row {
  float of[kThreads];
};

// Reverses the order of kThreads numbers in shared memory.
__global__ void reverse(float* x, bool with_barrier) {
  float* row = shared<Row>().of;
  const int i = threadIdx.x, other = kThreads - 1 - i;
  row[i] = 0;
  __syncthreads();
  row[i] = x[i];
  if (with_barrier) __syncthreads();
  x[i] = row[other];
}

// Runs the kernel and returns the message of the fault that the emulator reports, or "".
std::string fault_of(bool with_barrier) {
  std::vector<float> x(kThreads, 1);
  Exec exec;
  exec.device = {.type = DeviceType::kEmu, .arch = 90};
  exec.threads = 2;
  try {
    simt::launch(reverse, {.grid = 1, .block = kThreads, .smem_bytes = sizeof(Row)}, exec, x.data(),
                 with_barrier);
  } catch (const emulator::KernelError& fault) {
    return fault.what();
  }
  return {};
}

int check() {
  const std::string correct = fault_of(true), racy = fault_of(false);
  std::printf("with __syncthreads(): %s\n", correct.empty() ? "no fault" : correct.c_str());
  std::printf("without __syncthreads(): %s\n", racy.empty() ? "no fault" : racy.c_str());
  return correct.empty() && racy.find("race: thread") != std::string::npos ? 0 : 1;
}

}  // namespace
}  // namespace shale::kernels::emu

int main() {
  return shale::kernels::emu::check();
}

// A libnvidia-ml.so.1 with two GPUs. The first is fully busy. The second is half idle and hot, and
// has no power sensor. Signatures are those of NVIDIA's nvml.h.
#include <cstring>

extern "C" {

using Result = int;
constexpr Result kNotSupported = 3, kNotFound = 6;

struct Gpu {
  const char* id;
  unsigned busy, celsius;
  unsigned long long used;
  bool has_power;
};
Gpu gpus[] = {{"0000:17:00.0", 96, 61, 70ull << 30, true},
              {"0000:65:00.0", 48, 91, 50ull << 30, false}};

Result nvmlInit_v2() {
  return 0;
}
const char* nvmlErrorString(Result result) {
  return result == kNotFound ? "Not Found" : "Not Supported";
}
Result nvmlDeviceGetHandleByPciBusId_v2(const char* id, Gpu** gpu) {
  for (Gpu& known : gpus) {
    if (std::strcmp(known.id, id) != 0) continue;
    *gpu = &known;
    return 0;
  }
  return kNotFound;
}
Result nvmlDeviceGetUtilizationRates(Gpu* gpu, unsigned* gpu_and_memory) {
  gpu_and_memory[0] = gpu->busy, gpu_and_memory[1] = 0;
  return 0;
}
Result nvmlDeviceGetPowerUsage(Gpu* gpu, unsigned* milliwatts) {
  *milliwatts = 612'500;
  return gpu->has_power ? 0 : kNotSupported;
}
Result nvmlDeviceGetTemperature(Gpu* gpu, int sensor, unsigned* celsius) {
  *celsius = gpu->celsius;
  return sensor == 0 ? 0 : kNotSupported;
}
Result nvmlDeviceGetName(Gpu* gpu, char* text, unsigned bytes) {
  std::strncpy(text, gpu == gpus ? "NVIDIA H100 80GB HBM3" : "NVIDIA L4", bytes);
  return 0;
}
Result nvmlSystemGetDriverVersion(char* text, unsigned bytes) {
  std::strncpy(text, "580.65.06", bytes);
  return 0;
}
Result nvmlDeviceGetMemoryInfo(Gpu* gpu, unsigned long long* total_free_used) {
  total_free_used[0] = 80ull << 30, total_free_used[2] = gpu->used;
  total_free_used[1] = total_free_used[0] - gpu->used;
  return 0;
}

}  // extern "C"

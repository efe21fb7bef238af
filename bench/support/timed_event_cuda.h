#pragma once

#include <cuda_runtime.h>

#include "shale/kernels/simt/cuda/cuda_error.h"

namespace shale::bench {

// A CUDA event that records times. Compiled only in builds with CUDA.
class TimedEvent {
 public:
  TimedEvent() { kernels::cuda::check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~TimedEvent() { cudaEventDestroy(event_); }
  TimedEvent(const TimedEvent&) = delete;
  TimedEvent& operator=(const TimedEvent&) = delete;

  void record(cudaStream_t stream) {
    kernels::cuda::check(cudaEventRecord(event_, stream), "cudaEventRecord");
  }
  // Waits for this event, and returns the seconds since `start`.
  double seconds_since(const TimedEvent& start) const {
    float ms = 0;
    kernels::cuda::check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    kernels::cuda::check(cudaEventElapsedTime(&ms, start.event_, event_), "cudaEventElapsedTime");
    return double(ms) * 1e-3;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace shale::bench

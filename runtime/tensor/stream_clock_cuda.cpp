// Clock of a GPU's streams; marks are events with timing. Compiled only in builds with CUDA.
#include <cuda_runtime.h>

#include "shale/kernels/simt/cuda/cuda_error.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale {
namespace {

using kernels::cuda::check;

class CudaClock final : public StreamClock {
 public:
  explicit CudaClock(int index) : index_(index) {}

 private:
  struct Timed final : Point {
    ~Timed() override { cudaEventDestroy(event); }
    cudaEvent_t event = nullptr;
  };
  static cudaEvent_t event_of(const Point& point) {
    return static_cast<const Timed&>(point).event;
  }

  std::unique_ptr<Point> make_point() override {
    check(cudaSetDevice(index_), "cudaSetDevice");
    auto point = std::make_unique<Timed>();
    check(cudaEventCreate(&point->event), "cudaEventCreate");
    return point;
  }
  void record(Point& point, void* stream) override {
    check(cudaEventRecord(event_of(point), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
  }
  bool passed(const Point& point) override {
    const cudaError_t result = cudaEventQuery(event_of(point));
    if (result == cudaErrorNotReady) return false;
    check(result, "cudaEventQuery");
    return true;
  }
  void wait(const Point& point, void*) override {
    check(cudaEventSynchronize(event_of(point)), "cudaEventSynchronize");
  }
  double seconds_between(const Point& from, const Point& to) override {
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, event_of(from), event_of(to)),
          "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

  int index_;
};

}  // namespace

std::unique_ptr<StreamClock> make_cuda_stream_clock(const Device& device) {
  return std::make_unique<CudaClock>(device.index);
}

}  // namespace shale

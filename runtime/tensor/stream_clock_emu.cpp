// Clock of the emulated GPU's streams. A mark is queued work that reads the host's clock when it
// runs.
#include <atomic>

#include "shale/kernels/simt/engine/stream.h"
#include "shale/runtime/tensor/stream_clock.h"

namespace shale {
namespace {

class EmuClock final : public StreamClock {
 private:
  using Time = HostClock::time_point;
  // Time at which a stream passes a mark. Queued work writes it, possibly on another thread or
  // after the clock's destruction.
  struct Passing {
    Time time;
    std::atomic<bool> over = false;
  };
  struct Queued final : Point {
    std::shared_ptr<Passing> passing;
  };
  static const Passing& of(const Point& point) {
    return *static_cast<const Queued&>(point).passing;
  }

  std::unique_ptr<Point> make_point() override { return std::make_unique<Queued>(); }
  void record(Point& point, void* stream) override {
    const auto passing = std::make_shared<Passing>();
    static_cast<Queued&>(point).passing = passing;
    static_cast<emulator::Stream*>(stream)->enqueue([passing] {
      passing->time = HostClock::now();
      passing->over.store(true, std::memory_order_release);
    });
  }
  bool passed(const Point& point) override {
    return of(point).over.load(std::memory_order_acquire);
  }
  void wait(const Point& point, void* stream) override {
    if (!passed(point)) static_cast<emulator::Stream*>(stream)->synchronize();
  }
  double seconds_between(const Point& from, const Point& to) override {
    return std::chrono::duration<double>(of(to).time - of(from).time).count();
  }
};

}  // namespace

std::unique_ptr<StreamClock> make_emu_stream_clock() {
  return std::make_unique<EmuClock>();
}

}  // namespace shale

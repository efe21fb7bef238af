#pragma once

#include <cstddef>
#include <cstdint>

namespace shale {

// Simulated time of a dry run's streams (plan_backend.h). The backend reports the host's calls in
// order; the clock computes when their work is done. Times are in seconds from an arbitrary start.
class PlanClock {
 public:
  // Direction of a copy, seen from the device.
  enum class Way : uint8_t { kInside, kToHost, kFromHost };

  virtual ~PlanClock() = default;
  virtual void copies(Way way, size_t bytes, void* stream) = 0;
  // Time at which all work queued on the stream so far will be done.
  virtual double time_of(void* stream) = 0;
  // Delays work that is queued on the stream from now on until this time or later.
  virtual void hold_back(void* stream, double time) = 0;
  virtual void host_waits(double time) = 0;
};

}  // namespace shale

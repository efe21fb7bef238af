#pragma once

#include <cstddef>
#include <cstdint>

namespace shale {

// Keeps the time of a plan's streams (plan_backend.h), which only the host's calls show: told of
// them in their order, it says when. Seconds, from wherever the clock began.
class PlanClock {
 public:
  enum class Way : uint8_t { kInside, kToHost, kFromHost };  // of a copy, as the device sees it

  virtual ~PlanClock() = default;
  virtual void copies(Way way, size_t bytes, void* stream) = 0;
  // When all that was queued on it so far will be done.
  virtual double time_of(void* stream) = 0;
  // What is queued on it from now on begins then at the earliest.
  virtual void hold_back(void* stream, double time) = 0;
  virtual void host_waits(double time) = 0;
};

}  // namespace shale

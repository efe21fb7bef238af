#include "shale/base/trace.h"

namespace shale {

void Tracer::add(std::string_view name, double seconds) {
  const std::lock_guard lock(mutex_);
  auto it = totals_.find(name);
  if (it == totals_.end()) it = totals_.emplace(std::string(name), Total{}).first;
  it->second.calls += 1;
  it->second.seconds += seconds;
}

std::map<std::string, Tracer::Total, std::less<>> Tracer::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

double Tracer::seconds(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto it = totals_.find(name);
  return it == totals_.end() ? 0.0 : it->second.seconds;
}

void Tracer::reset() {
  const std::lock_guard lock(mutex_);
  totals_.clear();
}

}  // namespace shale

#include "shale/kernels/dry_run.h"

#include <utility>

namespace shale::kernels {
namespace {

thread_local int alive = 0;  // number of DryRun objects on this thread; they may be nested

}  // namespace

DryRun::DryRun() {
  ++alive;
}

DryRun::~DryRun() {
  --alive;
}

DryRun::Pause::Pause() : alive_(std::exchange(alive, 0)) {}

DryRun::Pause::~Pause() {
  alive = alive_;
}

bool DryRun::is_on() {
  return alive > 0;
}

}  // namespace shale::kernels

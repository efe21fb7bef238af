#include "shale/kernels/dry_run.h"

namespace shale::kernels {
namespace {

thread_local int alive = 0;  // they may be nested

}  // namespace

DryRun::DryRun() {
  ++alive;
}

DryRun::~DryRun() {
  --alive;
}

bool DryRun::is_on() {
  return alive > 0;
}

}  // namespace shale::kernels

#include "shale/kernels/slot.h"

#include "shale/base/error.h"

namespace shale::kernels {
namespace {

std::vector<SlotBase*>& slots() {
  static std::vector<SlotBase*> list;  // built before main by the slots' constructors
  return list;
}

}  // namespace

SlotBase::SlotBase(const char* name) : name_(name) {
  slots().push_back(this);
}

const std::vector<SlotBase*>& SlotBase::all() {
  return slots();
}

SlotBase::Erased SlotBase::lookup(const Exec& exec) const {
  const Erased fn = erased(exec.device.type);
  if (fn == nullptr) {
    throw UnavailableError(
        cat(name_, ": there is no kernel for device ", exec.device, " in this build"));
  }
  return fn;
}

}  // namespace shale::kernels

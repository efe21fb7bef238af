#include "shale/kernels/slot.h"

#include "shale/base/error.h"

namespace shale::kernels {
namespace {

std::vector<SlotBase*>& slots() {
  static std::vector<SlotBase*> list;  // filled before main by the slots' constructors
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

void SlotBase::observe(const Exec& exec, const void* args,
                       const std::function<void(const Exec&)>& run) const {
  exec.observer->around(SlotCall(*this, exec, args, run));
}

SlotCall::SlotCall(const SlotBase& slot, const Exec& exec, const void* args, const Run& run)
    : slot_(slot), exec_(exec), args_(args), run_(run) {
  exec_.observer = nullptr;
}

}  // namespace shale::kernels

#pragma once

#include <array>
#include <vector>

#include "shale/base/device.h"
#include "shale/base/exec.h"
#include "shale/base/trace.h"

namespace shale::kernels {

// One operation's table of implementations, one per device; filled once at start by the registries.
class SlotBase {
 public:
  explicit SlotBase(const char* name);
  SlotBase(const SlotBase&) = delete;
  SlotBase& operator=(const SlotBase&) = delete;

  const char* name() const { return name_; }
  bool filled(DeviceType device) const { return erased(device) != nullptr; }

  static const std::vector<SlotBase*>& all();  // every slot of the program

 protected:
  using Erased = void (*)();
  void set_erased(DeviceType device, Erased fn) { table_[static_cast<size_t>(device)] = fn; }
  Erased erased(DeviceType device) const { return table_[static_cast<size_t>(device)]; }
  Erased lookup(const Exec& exec) const;  // throws UnavailableError naming op and device

 private:
  const char* name_;
  std::array<Erased, kDeviceTypes> table_{};
};

// A call checks its arguments and runs the implementation of exec.device; its time is added to
// exec.tracer, if there is one, under the slot's name.
//
// void check_args(const Args&), which stands beside Args, has what the slot asks of its arguments,
// the same on every device: their shapes, strides and dtypes, not the values in device memory. It
// throws ShapeError, DTypeError or InternalError with the op, the argument, what was expected and
// what was got.
template <typename Args>
class Slot : public SlotBase {
 public:
  using Fn = void (*)(const Exec&, const Args&);
  using SlotBase::SlotBase;

  void set(DeviceType device, Fn fn) { set_erased(device, reinterpret_cast<Erased>(fn)); }
  Fn get(DeviceType device) const { return reinterpret_cast<Fn>(erased(device)); }  // or null

  void operator()(const Exec& exec, const Args& args) const {
    const auto fn = reinterpret_cast<Fn>(lookup(exec));
    const TraceScope scope(exec.tracer, name());
    check_args(args);
    fn(exec, args);
  }
};

}  // namespace shale::kernels

#pragma once

#include <array>
#include <functional>
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
  // Has exec.observer make the call. `args` are the slot's, `run` the implementation.
  void observe(const Exec& exec, const void* args,
               const std::function<void(const Exec&)>& run) const;

 private:
  const char* name_;
  std::array<Erased, kDeviceTypes> table_{};
};

// A call checks its arguments and runs the implementation of exec.device; its time is added to
// exec.tracer, if there is one, under the slot's name. An exec.observer makes it in the slot's
// place.
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

  void operator()(const Exec& exec, const Args& args) const {
    const auto fn = reinterpret_cast<Fn>(lookup(exec));
    const TraceScope scope(exec.tracer, name());
    check_args(args);
    if (exec.observer == nullptr) return fn(exec, args);
    observe(exec, &args, [fn, &args](const Exec& inside) { fn(inside, args); });
  }
};

// A call of a slot, as its observer sees it: checked, and still to be made.
class SlotCall {
 public:
  using Run = std::function<void(const Exec&)>;
  // Refers to what it is given, but for exec.
  SlotCall(const SlotBase& slot, const Exec& exec, const void* args, const Run& run);

  const SlotBase& slot() const { return slot_; }
  const Exec& exec() const { return exec_; }
  // The arguments of a call of `slot`; null if this is a call of another.
  template <typename Args>
  const Args* args_of(const Slot<Args>& slot) const {
    return &slot == &slot_ ? static_cast<const Args*>(args_) : nullptr;
  }
  void run() const { run_(exec_); }

 private:
  const SlotBase& slot_;
  Exec exec_;  // without the observer: what a kernel calls itself is part of its own call
  const void* args_;
  const Run& run_;
};

// Stands around every call that is made with an Exec that names it, on the thread that makes it.
// For benchmarks and tools: replayed graphs make no calls.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Has to make the call by call.run(), once at least.
  virtual void around(const SlotCall& call) = 0;
  // Called before something else than a kernel writes to memory (Context::will_write).
  virtual void writing(const void* /*to*/, int64_t /*bytes*/) {}
};

}  // namespace shale::kernels

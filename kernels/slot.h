#pragma once

#include <array>
#include <functional>
#include <vector>

#include "shale/base/device.h"
#include "shale/base/exec.h"
#include "shale/base/trace.h"

namespace shale::kernels {

// One operation's table of implementations, one per device. The registries fill it once at start.
class SlotBase {
 public:
  explicit SlotBase(const char* name);
  SlotBase(const SlotBase&) = delete;
  SlotBase& operator=(const SlotBase&) = delete;

  const char* name() const { return name_; }
  bool filled(DeviceType device) const { return erased(device) != nullptr; }

  static const std::vector<SlotBase*>& all();  // returns all slots of the program

 protected:
  using Erased = void (*)();
  void set_erased(DeviceType device, Erased fn) { table_[static_cast<size_t>(device)] = fn; }
  Erased erased(DeviceType device) const { return table_[static_cast<size_t>(device)]; }
  Erased lookup(const Exec& exec) const;  // throws UnavailableError naming op and device
  // Lets exec.observer make the call. `args` are the slot's arguments, `run` the
  // implementation.
  void observe(const Exec& exec, const void* args,
               const std::function<void(const Exec&)>& run) const;

 private:
  const char* name_;
  std::array<Erased, kDeviceTypes> table_{};
};

// A call checks its arguments and runs the implementation for exec.device. If exec.tracer is set,
// its time is added under the slot's name. If exec.observer is set, the observer makes the call.
//
// check_args(const Args&), which is declared next to Args, checks shapes, strides and dtypes, the
// same way on every device, but not values in device memory. It throws ShapeError, DTypeError or
// InternalError with the op, the argument, what was expected and what was found.
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

// A call of a slot as its observer sees it. The arguments are checked, but the kernel has not run
// yet.
class SlotCall {
 public:
  using Run = std::function<void(const Exec&)>;
  // Keeps references to its arguments, but a copy of exec.
  SlotCall(const SlotBase& slot, const Exec& exec, const void* args, const Run& run);

  const SlotBase& slot() const { return slot_; }
  const Exec& exec() const { return exec_; }
  // Returns the arguments if this is a call of `slot`, else null.
  template <typename Args>
  const Args* args_of(const Slot<Args>& slot) const {
    return &slot == &slot_ ? static_cast<const Args*>(args_) : nullptr;
  }
  void run() const { run_(exec_); }

 private:
  const SlotBase& slot_;
  Exec exec_;  // has no observer, so that nested kernel calls are part of this call
  const void* args_;
  const Run& run_;
};

// Called for every kernel call with an Exec that has this observer, on the calling thread. For
// benchmarks and tools. Replayed graphs make no calls.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // Must make the call with call.run(), at least once.
  virtual void around(const SlotCall& call) = 0;
  // Called before anything but a kernel writes to memory (Context::will_write).
  virtual void writing(const void* /*to*/, int64_t /*bytes*/) {}
};

}  // namespace shale::kernels

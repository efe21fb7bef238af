#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/cost.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/slot.h"
#include "shale/runtime/kernel_check/kernel_device.h"
#include "shale/runtime/kernel_check/plain_operands.h"

namespace shale::kernel_check {

View transposed(View matrix);  // returns the same memory as [n, m]

// Device memory for the arguments of one kernel case.
class Operands {
 public:
  explicit Operands(KernelDevice& device) : device_(device) {}
  Device device() const { return device_.device(); }

  // Uniform numbers in [-scale, scale].
  View floats(DType dtype, const Shape& shape, double scale = 1);
  View integers(const Shape& shape, int64_t bound);  // i32 numbers in [0, bound)
  // Returns an i32 view whose element `index` is value(index).
  View integers(const Shape& shape, const std::function<int32_t(int64_t)>& value);
  // Random u8 codes. Each is a finite fp8 number, and any four in a row are a finite f32.
  View codes(const Shape& shape);
  View zeros(DType dtype, const Shape& shape);
  // f32 view whose element `index` is value(index).
  View values(const Shape& shape, const std::function<float(int64_t)>& value);
  // Zeroed device memory.
  void* raw(size_t bytes);
  std::span<void*> host_pointers(size_t count);  // host memory, which the caller fills

  // Makes floats that all copies of a case share, for operands of which a call reads only a small
  // part.
  View shared(const std::string& name, DType dtype, const Shape& shape);

  int64_t bytes() const { return bytes_; }  // bytes of the operands that are not shared
  // Returns all operands, in the order in which they were made; raw memory is u8.
  const std::vector<View>& all() const { return all_; }

 private:
  template <typename Fill>
  View filled(DType dtype, const Shape& shape, Fill&& fill);
  View add(DType dtype, const Shape& shape);

  KernelDevice& device_;
  std::deque<DeviceMemory> memory_;
  std::vector<View> all_;
  std::deque<std::vector<void*>> pointers_;
  std::map<std::string, View> shared_;
  int64_t bytes_ = 0;
  uint64_t seed_ = 0;
};

// Environment of kernel calls: the device, an Exec, and the number of operand copies.
class KernelBench {
 public:
  // rotation_bytes: total size of the operand copies that calls use in turn, so that caches are
  // cold (copies()); 0: chosen by the size of the device's caches.
  explicit KernelBench(KernelDevice& device, int64_t rotation_bytes = 0);
  // Takes all fields of `exec`, such as a context's counters, except workspace and StepState.
  KernelBench(KernelDevice& device, const Exec& exec);
  KernelBench(const KernelBench&) = delete;  // no copies: exec() points into the object
  KernelBench& operator=(const KernelBench&) = delete;
  const Exec& exec() const { return exec_; }
  KernelDevice& device() const { return device_; }

  // Returns the number of copies of `bytes` bytes to use in turn, so that a call never finds its
  // operands in a cache: in a training step, hundreds of megabytes are used between two uses of a
  // tensor.
  int64_t copies(int64_t bytes) const;

 private:
  KernelDevice& device_;
  DeviceWorkspace workspace_;
  DeviceMemory step_;
  Exec exec_;
  int64_t rotation_bytes_ = 0;
};

// A case whose operands are allocated.
struct PreparedCase {
  kernels::Cost cost;
  std::function<void()> run;     // launches the kernel on the next copy of the operands
  std::function<void()> vendor;  // does the same work by the vendor's library; may be empty
  std::vector<View> operands;    // operands of the first call of run(), in device memory
  std::function<void()> foreign = {};     // does the same work by a ForeignKernel; may be empty
  std::vector<PlainOperands> plain = {};  // each copy of the operands; empty: see plain_operands()
};

// Kernels that a case uses on a GPU.
enum class KernelFamily : uint8_t {
  kOfDevice,  // the kernels that the slot chooses
  kPortable,  // the kernels for every GPU
  kHopper,    // the kernels for compute capability 9.0
  kVendor,    // cuBLASLt GEMMs with separate epilogue kernels
};
inline constexpr int kKernelFamilies = 4;

// Properties of a case that cost_of() and the slot's arguments do not include.
struct CaseOptions {
  bool deterministic = false;  // sets Exec::deterministic
  double flops_share = 1;      // needed share of the FLOP that cost_of() returns
  KernelFamily family = KernelFamily::kOfDevice;
};

// A case of a kernel: one line of bench_kernels.
struct KernelCase {
  std::string name;  // such as "slot/variant/size/dtype"
  std::string slot;
  DType dtype = DType::kF32;
  KernelFamily family = KernelFamily::kOfDevice;
  std::function<PreparedCase(const KernelBench&)> prepare;
};

// Does a case's work with the vendor's library. Null if the library cannot do it.
template <typename Args>
using VendorCall = std::function<void(const Args&)>;
template <typename Args>
using MakeVendorCall = std::function<VendorCall<Args>(KernelDevice&, const Args&)>;

// Calls the kernels of a case.
template <typename Args>
using RunCase = std::function<void(const Exec&, const Args&)>;

// Makes a case from a function that calls kernels, and a function that makes its arguments, which
// is called once per operand copy. `slot` is the name of the kernels' slot, and the prefix of the
// case's name.
template <typename Args>
KernelCase make_case(std::string name, const char* slot, RunCase<Args> run, DType dtype,
                     std::function<Args(Operands&)> make, MakeVendorCall<Args> vendor = nullptr,
                     const CaseOptions& options = {}) {
  const auto prepare = [run = std::move(run), make = std::move(make), vendor,
                        options](const KernelBench& bench) {
    struct State {
      explicit State(KernelDevice& device) : operands(device) {}
      const Args& next(size_t& count) { return args[count++ % args.size()]; }
      Operands operands;
      std::vector<Args> args;
      VendorCall<Args> vendor;
      size_t turn = 0, vendor_turn = 0;
    };
    const auto state = std::make_shared<State>(bench.device());
    state->args.push_back(make(state->operands));
    const std::vector<View> first = state->operands.all();
    const int64_t copies = bench.copies(state->operands.bytes());
    while (int64_t(state->args.size()) < copies) state->args.push_back(make(state->operands));
    if (vendor) state->vendor = vendor(bench.device(), state->args.front());
    Exec exec = bench.exec();
    exec.deterministic = options.deterministic;
    // Some kernels are chosen by the device, not by a plan. Capability 8.0 (A100) has only portable
    // ones.
    if (options.family == KernelFamily::kPortable && exec.device.arch == 90) exec.device.arch = 80;
    PreparedCase prepared{.cost = cost_of(state->args.front()),
                          .run = [state, run, exec] { run(exec, state->next(state->turn)); },
                          .vendor = {},
                          .operands = first};
    prepared.cost.flops *= options.flops_share;
    for (const Args& args : state->args) {
      if (auto plain = plain_operands(args)) prepared.plain.push_back(*std::move(plain));
    }
    if (state->vendor) {
      prepared.vendor = [state] { state->vendor(state->next(state->vendor_turn)); };
    }
    return prepared;
  };
  return {.name = cat(slot, "/", name),
          .slot = slot,
          .dtype = dtype,
          .family = options.family,
          .prepare = prepare};
}

// Makes a case that calls one slot.
template <typename Args>
KernelCase make_case(std::string name, const kernels::Slot<Args>& slot, DType dtype,
                     std::function<Args(Operands&)> make, MakeVendorCall<Args> vendor = nullptr,
                     const CaseOptions& options = {}) {
  return make_case<Args>(
      std::move(name), slot.name(),
      [&slot](const Exec& exec, const Args& args) { slot(exec, args); }, dtype, std::move(make),
      std::move(vendor), options);
}

// Makes a GEMM case. The vendor's GEMM has the same operands, but no epilogue.
KernelCase make_gemm_case(std::string name, DType dtype,
                          std::function<kernels::GemmArgs(Operands&)> make,
                          const CaseOptions& options = {});

// Returns a plan for a GEMM by this family's kernels; for Hopper, with the fastest tile.
kernels::GemmPlan plan_of_family(KernelFamily family, const Device& device,
                                 const kernels::GemmArgs& args);

const char* family_name(KernelFamily family);  // returns a name such as "hopper"

}  // namespace shale::kernel_check

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

View transposed(View matrix);  // [m, n] -> a view of the same memory as [n, m]

// Device memory for the arguments of one kernel case.
class Operands {
 public:
  explicit Operands(KernelDevice& device) : device_(device) {}
  Device device() const { return device_.device(); }

  // Returns a view of numbers that are uniform in [-scale, scale].
  View floats(DType dtype, const Shape& shape, double scale = 1);
  View integers(const Shape& shape, int64_t bound);  // returns i32 numbers in [0, bound)
  // Returns an i32 view whose element `index` is value(index).
  View integers(const Shape& shape, const std::function<int32_t(int64_t)>& value);
  // Returns random u8 codes. Each is a finite fp8 number, and any four consecutive ones are a
  // finite f32.
  View codes(const Shape& shape);
  View zeros(DType dtype, const Shape& shape);
  // Returns an f32 view whose element `index` is value(index).
  View values(const Shape& shape, const std::function<float(int64_t)>& value);
  // Zeroed device memory.
  void* raw(size_t bytes);
  std::span<void*> host_pointers(size_t count);  // host memory, which the caller fills

  // Returns floats that all copies of a case share. For large operands of which a call reads only a
  // small part.
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

// Environment for kernel calls: the device, an Exec, and the number of copies of the operands.
class KernelBench {
 public:
  // rotation_bytes: total size of all copies of the operands. Calls use the copies in turn, so that
  // caches are cold (see copies()). 0: derived from the size of the device's caches.
  explicit KernelBench(KernelDevice& device, int64_t rotation_bytes = 0);
  // Copies all fields of `exec`, such as a context's counters, except workspace and StepState.
  KernelBench(KernelDevice& device, const Exec& exec);
  KernelBench(const KernelBench&) = delete;  // not copyable, because exec() points into the object
  KernelBench& operator=(const KernelBench&) = delete;
  const Exec& exec() const { return exec_; }
  KernelDevice& device() const { return device_; }

  // Returns how many copies of operands of `bytes` bytes calls should use in turn, so that no call
  // finds its operands in a cache. A training step is like that: it uses hundreds of megabytes
  // between two uses of a tensor.
  int64_t copies(int64_t bytes) const;

 private:
  KernelDevice& device_;
  DeviceWorkspace workspace_;
  DeviceMemory step_;
  Exec exec_;
  int64_t rotation_bytes_ = 0;
};

// A case with allocated operands, ready to run.
struct PreparedCase {
  kernels::Cost cost;
  std::function<void()> run;     // launches the kernel on the next copy of the operands
  std::function<void()> vendor;  // like `run`, but with the vendor's library; may be empty
  std::vector<View> operands;    // operands of the first call of run(), in device memory
  std::function<void()> foreign = {};  // like `run`, but with a ForeignKernel; may be empty
  // one entry per copy of the operands; empty if plain_operands() returns none
  std::vector<PlainOperands> plain = {};
};

// Selects which kernels a case uses on a GPU.
enum class KernelFamily : uint8_t {
  kOfDevice,  // the kernels that the slot chooses
  kPortable,  // the kernels for every GPU
  kHopper,    // the kernels for compute capability 9.0
  kVendor,    // cuBLASLt GEMMs with separate epilogue kernels
};
inline constexpr int kKernelFamilies = 4;

// Properties of a case that neither cost_of() nor the slot's arguments contain.
struct CaseOptions {
  bool deterministic = false;  // sets Exec::deterministic
  double flops_share = 1;      // fraction of cost_of()'s FLOPs that the case really needs
  KernelFamily family = KernelFamily::kOfDevice;
};

// A test case of a kernel. bench_kernels prints one line for it.
struct KernelCase {
  std::string name;  // "slot/variant/size/dtype"
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

// Calls the kernels of a case with its arguments.
template <typename Args>
using RunCase = std::function<void(const Exec&, const Args&)>;

// Makes a case. `run` calls the kernels; `make` makes their arguments, and is called once per copy
// of the operands. `slot` is the name of the kernels' slot and the prefix of the case's name.
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
    // The device chooses some kernels, without a plan. On compute capability 8.0 (A100) it chooses
    // only portable ones.
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

// Makes a case that calls the kernel of one slot.
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

// Returns a plan that computes the GEMM with this family's kernels. For Hopper, it has the fastest
// tile.
kernels::GemmPlan plan_of_family(KernelFamily family, const Device& device,
                                 const kernels::GemmArgs& args);

const char* family_name(KernelFamily family);  // returns a name such as "hopper"

}  // namespace shale::kernel_check

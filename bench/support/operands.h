#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/bench/support/bench_device.h"
#include "shale/kernels/cost.h"
#include "shale/kernels/gemm_plan.h"
#include "shale/kernels/slot.h"

namespace shale::bench {

View transposed(View matrix);  // the same memory, [n, m] for [m, n]

// Memory for the arguments of one kernel case, on the device.
class Operands {
 public:
  explicit Operands(BenchDevice& device) : device_(device) {}
  Device device() const { return device_.device(); }

  View floats(DType dtype, const Shape& shape, double scale = 1);  // evenly over [-scale, scale]
  View integers(const Shape& shape, int64_t bound);                // i32 in [0, bound)
  View integers(const Shape& shape, const std::function<int32_t(int64_t)>& value);  // by index
  View zeros(DType dtype, const Shape& shape);
  View values(const Shape& shape, const std::function<float(int64_t)>& value);  // f32, by index
  void* raw(size_t bytes);                                                      // zeroed
  std::span<void*> host_pointers(size_t count);  // in host memory, to be filled

  // Floats that all copies of a case share: what a call touches a small part of only.
  View shared(const std::string& name, DType dtype, const Shape& shape);

  int64_t bytes() const { return bytes_; }  // without what is shared

 private:
  template <typename Fill>
  View filled(DType dtype, const Shape& shape, Fill&& fill);

  BenchDevice& device_;
  std::deque<DeviceMemory> memory_;
  std::deque<std::vector<void*>> pointers_;
  std::map<std::string, View> shared_;
  int64_t bytes_ = 0;
  uint64_t seed_ = 0;
};

// What kernels are called with.
class KernelBench {
 public:
  // rotation_bytes: see copies(); 0: the device's.
  explicit KernelBench(BenchDevice& device, int64_t rotation_bytes = 0);
  KernelBench(const KernelBench&) = delete;  // exec() points into it
  KernelBench& operator=(const KernelBench&) = delete;
  const Exec& exec() const { return exec_; }
  BenchDevice& device() const { return device_; }

  // How many copies of `bytes` bytes take turns so that a call never finds its operands in a cache:
  // within a training step, hundreds of megabytes go by between two uses of a tensor.
  int64_t copies(int64_t bytes) const;

 private:
  BenchDevice& device_;
  DeviceWorkspace workspace_;
  DeviceMemory step_;
  Exec exec_;
  int64_t rotation_bytes_ = 0;
};

// A case with its operands in place.
struct PreparedCase {
  kernels::Cost cost;
  std::function<void()> run;     // the kernel, on the next copy of the operands; does not wait
  std::function<void()> vendor;  // the same work by the vendor's library, on the same; optional
};

// Which of a GPU's kernels a case is of.
enum class KernelFamily : uint8_t {
  kOfDevice,  // those that a program gets there
  kPortable,  // those that every GPU runs
  kHopper,    // those for compute capability 9.0
  kVendor,    // cuBLASLt's products, where the epilogues are kernels of their own
};
inline constexpr int kKernelFamilies = 4;

// What cost_of() and the slot's arguments do not say of a case.
struct CaseOptions {
  bool deterministic = false;  // as in Exec
  double flops_share = 1;      // of the FLOP that the shapes count, those that are needed
  KernelFamily family = KernelFamily::kOfDevice;
};

// One line of bench_kernels.
struct KernelCase {
  std::string name;  // "slot/variant/size/dtype"
  std::string slot;
  DType dtype = DType::kF32;
  KernelFamily family = KernelFamily::kOfDevice;
  std::function<PreparedCase(const KernelBench&)> prepare;
};

// Does the same work as a kernel by the vendor's library. Null where the device has none.
template <typename Args>
using VendorCall = std::function<void(const Args&)>;
template <typename Args>
using MakeVendorCall = std::function<VendorCall<Args>(BenchDevice&, const Args&)>;

// What a case runs.
template <typename Args>
using RunCase = std::function<void(const Exec&, const Args&)>;

// Makes a case of what calls kernels and what makes its arguments, which is called once per copy.
// `slot` is the name of the kernels' slot, and begins the case's name.
template <typename Args>
KernelCase make_case(std::string name, const char* slot, RunCase<Args> run, DType dtype,
                     std::function<Args(Operands&)> make, MakeVendorCall<Args> vendor = nullptr,
                     const CaseOptions& options = {}) {
  const auto prepare = [run = std::move(run), make = std::move(make), vendor,
                        options](const KernelBench& bench) {
    struct State {
      explicit State(BenchDevice& device) : operands(device) {}
      const Args& next(size_t& count) { return args[count++ % args.size()]; }
      Operands operands;
      std::vector<Args> args;
      VendorCall<Args> vendor;
      size_t turn = 0, vendor_turn = 0;
    };
    const auto state = std::make_shared<State>(bench.device());
    state->args.push_back(make(state->operands));
    const int64_t copies = bench.copies(state->operands.bytes());
    while (int64_t(state->args.size()) < copies) state->args.push_back(make(state->operands));
    if (vendor) state->vendor = vendor(bench.device(), state->args.front());
    Exec exec = bench.exec();
    exec.deterministic = options.deterministic;
    // Kernels that go by the device, not by a plan: an A100 has none of its own.
    if (options.family == KernelFamily::kPortable && exec.device.arch == 90) exec.device.arch = 80;
    PreparedCase prepared{.cost = cost_of(state->args.front()),
                          .run = [state, run, exec] { run(exec, state->next(state->turn)); },
                          .vendor = {}};
    prepared.cost.flops *= options.flops_share;
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

// Makes a case of one slot.
template <typename Args>
KernelCase make_case(std::string name, const kernels::Slot<Args>& slot, DType dtype,
                     std::function<Args(Operands&)> make, MakeVendorCall<Args> vendor = nullptr,
                     const CaseOptions& options = {}) {
  return make_case<Args>(
      std::move(name), slot.name(),
      [&slot](const Exec& exec, const Args& args) { slot(exec, args); }, dtype, std::move(make),
      std::move(vendor), options);
}

// A matrix product, beside the vendor's product of the same operands without the epilogue.
KernelCase make_gemm_case(std::string name, DType dtype,
                          std::function<kernels::GemmArgs(Operands&)> make,
                          const CaseOptions& options = {});

// How the kernels of a family go about a product. Of Hopper's, some tile, whatever is fastest.
kernels::GemmPlan plan_of_family(KernelFamily family, const Device& device,
                                 const kernels::GemmArgs& args);

const char* family_name(KernelFamily family);  // "hopper"

}  // namespace shale::bench

#pragma once

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <type_traits>
#include <vector>

#include "shale/base/exec.h"
#include "shale/base/view.h"
#include "shale/kernels/slot.h"
#include "shale/test/support/numbers.h"

namespace shale::test {

// Returns an Exec for each device of this build and machine, the CPU first, with kernels
// registered. Each has a workspace that fills its memory with NaN and detects writes past its end.
const std::vector<Exec>& devices();

// Returns those of devices() that have a kernel for all of `slots`, and GPUs: the emulator as an
// A100 and, with another order of threads, as an H100; and the machine's first GPU. An H100 is
// returned twice. The second time it has two persistent blocks, like the emulated GPUs, so that a
// block processes several tiles. The test's output names devices that were left out. The variable
// SHALE_TEST_GPU restricts the GPUs: to the emulator (emu), to one emulated GPU (such as emu:75),
// or to a real GPU, which must exist (cuda). Launches are dependent (see Exec) on the emulated
// H100, and with SHALE_TEST_DEPENDENT_LAUNCH=1 also on a real GPU.
std::vector<Exec> devices_with(std::initializer_list<const kernels::SlotBase*> slots);

// Return `exec` with another number of CPU threads, or with other step values in device memory.
Exec with_threads(Exec exec, int threads);
Exec with_step(Exec exec, StepState* step);

// Raw device memory with margins on both sides. Tests check that kernels do not write to the
// margins.
class DeviceBytes {
 public:
  // Fills the memory with 0xff, which is NaN in every float dtype, unless SHALE_TEST_POISON=0 is
  // set. `element_bytes` (1, 2, 4 or 8) is the size of the elements, which kernels read and write
  // as a whole.
  DeviceBytes(const Exec& exec, size_t bytes, size_t element_bytes = 1);
  ~DeviceBytes();
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;

  void* data() const { return data_; }
  void upload(const void* from);
  void download(void* to) const;  // waits for the device's stream first
  bool margins_intact() const;

 private:
  Exec exec_;
  size_t bytes_ = 0;
  std::byte* block_ = nullptr;
  std::byte* data_ = nullptr;
};

// An array in device memory, to be passed to kernels: uploads, makes views, downloads.
//   DeviceArray<float> x(exec, randn<float>(n, 1)), y(exec, n);
//   kernels::axpby(exec, {.a = x.view({n}), .y = y.view({n})});
//   CHECK(y.download() == ...);
template <typename T>
class DeviceArray {
 public:
  DeviceArray(const Exec& exec, int64_t count)  // filled with NaN
      : count_(count),
        bytes_(std::make_unique<DeviceBytes>(exec, size_t(count) * sizeof(T), kElementBytes)) {}
  DeviceArray(const Exec& exec, const std::vector<T>& values)
      : DeviceArray(exec, static_cast<int64_t>(values.size())) {
    bytes_->upload(values.data());
  }

  int64_t size() const { return count_; }
  T* data() const { return static_cast<T*>(bytes_->data()); }
  View view(const Shape& shape) const { return make_view(data(), shape); }
  View view() const { return view({count_}); }
  // View with any strides, in elements, that starts at element `offset`.
  View view(const Shape& shape, const Shape& strides, int64_t offset = 0) const {
    return {.data = data() + offset, .dtype = dtype_of<T>, .shape = shape, .strides = strides};
  }
  void upload(const std::vector<T>& values) { bytes_->upload(values.data()); }
  std::vector<T> download() const {
    std::vector<T> values(static_cast<size_t>(count_));
    bytes_->download(values.data());
    return values;
  }
  // True if no kernel wrote outside the array.
  bool margins_intact() const { return bytes_->margins_intact(); }

 private:
  static constexpr size_t kElementBytes = std::is_arithmetic_v<T> || sizeof(T) == 2 ? sizeof(T) : 1;

  int64_t count_ = 0;
  std::unique_ptr<DeviceBytes> bytes_;
};

// Returns the values of memory that was filled with NaN, to check that a kernel did not touch
// elements. The filling is off under tools that track which memory was never written.
template <typename T>
std::vector<T> poison(int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  std::memset(static_cast<void*>(values.data()), 0xff, values.size() * sizeof(T));
  return values;
}

// Step values in device memory, and an Exec that uses them.
class DeviceStep {
 public:
  DeviceStep(const Exec& exec, const StepState& state)
      : bytes_(exec, sizeof(StepState)),
        exec_(with_step(exec, static_cast<StepState*>(bytes_.data()))) {
    bytes_.upload(&state);
  }
  const Exec& exec() const { return exec_; }
  StepState download() const {
    StepState state;
    bytes_.download(&state);
    return state;
  }

 private:
  DeviceBytes bytes_;
  Exec exec_;
};

// Block counters in device memory, and an Exec that uses them.
class DeviceCounters {
 public:
  explicit DeviceCounters(const Exec& exec)
      : bytes_(exec, sizeof(BlockCounters), sizeof(uint32_t)), exec_(exec) {
    const BlockCounters zeros;
    bytes_.upload(&zeros);
    exec_.counters = static_cast<BlockCounters*>(bytes_.data());
  }
  const Exec& exec() const { return exec_; }
  bool are_zero() const {
    BlockCounters counters;
    bytes_.download(&counters);
    return counters.next_tile == 0 &&
           std::ranges::all_of(counters.written, [](uint32_t count) { return count == 0; });
  }

 private:
  DeviceBytes bytes_;
  Exec exec_;
};

// Calls run(exec), which returns a vector, with 1, 2, 3, 4 and 7 CPU threads. Returns true if all
// results have the same bits.
template <typename Run>
bool same_bits_for_any_threads(const Exec& exec, Run&& run) {
  const auto want = run(with_threads(exec, 1));
  for (const int threads : {2, 3, 4, 7}) {
    if (!same_bits(run(with_threads(exec, threads)), want)) return false;
  }
  return true;
}

}  // namespace shale::test

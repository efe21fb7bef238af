#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/buffer.h"
#include "bench/support/cost.h"
#include "kernels/slot.h"

namespace shale::bench {

// Memory for the arguments of one kernel case.
class Operands {
 public:
  View floats(DType dtype, const Shape& shape, double scale = 1);  // evenly over [-scale, scale]
  View integers(const Shape& shape, int64_t bound);                // i32 in [0, bound)
  View zeros(DType dtype, const Shape& shape);
  void* raw(size_t bytes);  // zeroed

  // Floats that all copies of a case share: what a call touches a small part of only.
  View shared(const std::string& name, DType dtype, const Shape& shape);

  int64_t bytes() const { return bytes_; }  // without what is shared

 private:
  std::deque<Buffer> buffers_;
  std::map<std::string, View> shared_;
  int64_t bytes_ = 0;
  uint64_t seed_ = 0;
};

// What kernels are called with.
class KernelBench {
 public:
  // rotation_bytes: see copies(); 0: a multiple of the last-level cache.
  explicit KernelBench(int threads, int64_t rotation_bytes = 0);
  KernelBench(const KernelBench&) = delete;  // exec() points into it
  KernelBench& operator=(const KernelBench&) = delete;
  const Exec& exec() const { return exec_; }

  // How many copies of `bytes` bytes take turns so that a call never finds its operands in a cache:
  // within a training step, hundreds of megabytes go by between two uses of a tensor.
  int64_t copies(int64_t bytes) const;

 private:
  BufferWorkspace workspace_;
  StepState step_;
  Exec exec_;
  int64_t rotation_bytes_ = 0;
};

// A case with its operands in place.
struct PreparedCase {
  Cost cost;
  std::function<void()> run;     // the kernel, on the next copy of the operands
  std::function<void()> vendor;  // the same work by the vendor's library, on the same; optional
};

// One line of bench_kernels.
struct KernelCase {
  std::string name;  // "slot/variant/size/dtype"
  std::string slot;
  DType dtype = DType::kF32;
  std::function<PreparedCase(const KernelBench&)> prepare;
};

// Of a slot and a function that makes its arguments; called once per copy.
template <typename Args>
KernelCase make_case(std::string name, const kernels::Slot<Args>& slot, DType dtype,
                     std::function<Args(Operands&)> make) {
  const auto prepare = [&slot, make = std::move(make)](const KernelBench& bench) {
    struct State {
      Operands operands;
      std::vector<Args> args;
      size_t next = 0;
    };
    const auto state = std::make_shared<State>();
    state->args.push_back(make(state->operands));
    const int64_t copies = bench.copies(state->operands.bytes());
    while (int64_t(state->args.size()) < copies) state->args.push_back(make(state->operands));
    return PreparedCase{.cost = cost_of(state->args.front()),
                        .run = [state, &slot, exec = bench.exec()] {
                          slot(exec, state->args[state->next++ % state->args.size()]);
                        },
                        .vendor = {}};
  };
  return {.name = std::string(slot.name()) + "/" + std::move(name),
          .slot = slot.name(),
          .dtype = dtype,
          .prepare = prepare};
}

// A matrix product, beside oneDNN's product of the same operands without the epilogue.
KernelCase make_gemm_case(std::string name, DType dtype,
                          std::function<kernels::GemmArgs(Operands&)> make);

}  // namespace shale::bench

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shale/bench/support/buffer.h"
#include "shale/bench/support/kernel_recorder.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// Runs the GEMMs and convolutions of a step directly with oneDNN. Their time is the floor of the
// step: what it would take if all other work took no time. They have the shapes and the order of a
// real step. Their operands are in this object's own memory, but share and reuse it as in the step,
// so that the caches behave in the same way.
class ProductFloor {
 public:
  // Throws UnavailableError if oneDNN does not support one of the GEMMs or convolutions.
  explicit ProductFloor(std::vector<ProductCall> calls);

  // Runs all calls with the threads of omp_set_num_threads(); returns the total seconds.
  double run();
  void reset() { totals_.clear(); }

  double flops() const;
  int64_t memory_bytes() const;
  // Returns the totals of all runs since reset(), by ProductCall's name.
  const std::map<std::string, CallTotal>& totals() const { return totals_; }

 private:
  struct Product {
    ProductCall call;  // the call, with addresses in this object's memory
    const VendorPrimitive* vendor = nullptr;
  };
  // A range of the step's memory in which operands overlap, and the buffer that replaces it.
  struct Region {
    uintptr_t begin = 0, end = 0;
    Buffer buffer;
  };
  struct Operand {
    View view;
    double scale = 0;
    uint64_t seed = 0;
  };

  void make_regions(const std::vector<ProductCall>& calls);
  void* here(const void* there) const;
  void plan_inputs();
  void write_inputs(const std::vector<Operand>& inputs) const;

  std::vector<Region> regions_;  // sorted by address
  std::map<ProductSpec, std::unique_ptr<VendorPrimitive>> vendors_;
  std::vector<Product> products_;
  std::vector<Operand> inputs_;       // all inputs
  std::vector<Operand> overwritten_;  // inputs that are also outputs
  Buffer scratch_;
  std::map<std::string, CallTotal> totals_;
};

}  // namespace shale::bench

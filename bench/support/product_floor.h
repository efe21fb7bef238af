#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shale/bench/support/buffer.h"
#include "shale/bench/support/kernel_recorder.h"
#include "shale/bench/support/vendor_primitive.h"

namespace shale::bench {

// The matrix products and convolutions of a step and nothing else, straight through oneDNN: what a
// step would take if all the rest were free. They are those that a real step made, in its order,
// with operands that share and reuse memory as the step's did, so that caches find the same
// pattern; the memory is the floor's own.
class ProductFloor {
 public:
  // Throws UnavailableError where oneDNN lacks a product.
  explicit ProductFloor(std::vector<ProductCall> calls);

  // Runs all products with the threads of omp_set_num_threads(); seconds in all.
  double run();
  void reset() { totals_.clear(); }

  double flops() const;
  int64_t memory_bytes() const;
  // Totals of all runs since reset(), by name.
  const std::map<std::string, CallTotal>& totals() const { return totals_; }

 private:
  struct Product {
    ProductCall call;  // with addresses in the floor's memory
    const VendorPrimitive* vendor = nullptr;
  };
  // A stretch of the step's memory that operands overlap in, and what stands for it here.
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

  std::vector<Region> regions_;  // by address
  std::map<ProductSpec, std::unique_ptr<VendorPrimitive>> vendors_;
  std::vector<Product> products_;
  std::vector<Operand> inputs_;       // all memory that products read
  std::vector<Operand> overwritten_;  // the part of it that products also write
  Buffer scratch_;
  std::map<std::string, CallTotal> totals_;
};

}  // namespace shale::bench

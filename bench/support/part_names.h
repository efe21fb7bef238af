#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/kernel_recorder.h"
#include "shale/models/language/model.h"

namespace shale::bench {

// Tells which part of a step of a language model a kernel call belongs to: matrix products by
// layer, direction and epilogue, all else by what the slot is for. A product that the model does
// not name goes by its shape, a slot that nobody named by its own name.
class PartNames {
 public:
  explicit PartNames(std::vector<models::NamedProduct> products) : products_(std::move(products)) {}

  std::string of(const kernels::KernelCall& call) const;

 private:
  std::string of_product(const kernels::GemmArgs& args) const;

  std::vector<models::NamedProduct> products_;
};

}  // namespace shale::bench

#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/kernel_recorder.h"
#include "shale/models/language/model.h"

namespace shale::bench {

// Assigns the kernel calls of a language model's step to named parts. GEMMs are named by layer,
// direction and epilogue, other kernels by the slot's purpose. Unknown GEMMs are named by their
// shape, unknown slots by their own name.
class PartNames {
 public:
  explicit PartNames(std::vector<models::NamedProduct> products) : products_(std::move(products)) {}

  std::string of(const kernels::KernelCall& call) const;

 private:
  std::string of_product(const kernels::GemmArgs& args) const;

  std::vector<models::NamedProduct> products_;
};

}  // namespace shale::bench

#pragma once

#include <string>
#include <vector>

#include "shale/bench/support/kernel_recorder.h"
#include "shale/models/language/family.h"

namespace shale::bench {

// A part of a training step, as its table shows it.
struct NamedPart {
  int place = 0;  // of its row
  std::string name;
};

// Which part of a step of a language model a kernel call belongs to: matrix products by layer,
// direction and epilogue, all else by what the slot is for.
class PartNames {
 public:
  explicit PartNames(const models::LanguageModelConfig& model);

  // Throws InternalError for a product that is none of the model's layers', and for a slot that has
  // no place.
  NamedPart of(const KernelCall& call) const;

 private:
  struct Layer {
    const char* name;
    int64_t in, out;  // its weight is [out, in]
  };
  NamedPart of_product(const kernels::GemmArgs& args) const;

  std::vector<Layer> layers_;  // in the order of forward
};

}  // namespace shale::bench

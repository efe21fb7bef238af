#include "shale/comm/parallel/data/flat_buffer.h"

#include <utility>

namespace shale::comm {

FlatBuffer::FlatBuffer(ShardingContext& shared, std::string name, const BufferTraits& traits,
                       const std::vector<Parameter*>& parameters)
    : spec_(shared, std::move(name), traits, parameters),
      shard_{.name = spec_.name},
      values_(spec_, shard_) {
  for (const FlatEntry& entry : layout().entries) {
    shard_.spans.push_back(spec_.span_of(entry, ranks().rank()));
  }
  if (traits.trainable) gradient_.emplace(spec_, shard_);
  values_.write_initial();
}

void FlatBuffer::detach() {
  if (spec_.gathers_fp8()) values_.unbind();  // parameters must not refer to freed codes
  if (gradient_) gradient_->detach();
}

const FlatEntry* FlatBuffer::find(const Parameter& parameter) const {
  for (const FlatEntry& entry : layout().entries) {
    if (entry.parameter == &parameter) return &entry;
  }
  return nullptr;
}

ApartGradient::ApartGradient(ShardingContext& shared, std::string name, const BufferTraits& traits,
                             const std::vector<Parameter*>& parameters)
    : spec_(shared, std::move(name), traits, parameters),
      shard_{.name = spec_.name},
      gradient_(spec_, shard_) {}

void ApartGradient::detach() {
  for (const FlatEntry& entry : spec_.layout.entries) entry.parameter->keep_apart(false);
}

}  // namespace shale::comm

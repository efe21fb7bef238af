#include "shale/comm/parallel/data/flat_unit.h"

#include <algorithm>
#include <map>

#include "shale/base/error.h"
#include "shale/runtime/nn/fp8.h"
#include "shale/runtime/nn/frozen.h"

namespace shale::comm {
namespace {

// Format in which a parameter is gathered, if it is not persistent. kPlain: its own dtype.
Operands gathered_as(const ShardingContext& shared, const UnitOptions& options,
                     const Parameter& parameter) {
  const bool may_be_fp8 = shared.options.gather_fp8 && options.offload.tier == nullptr &&
                          parameter.trainable && parameter.numel() > 0;
  return may_be_fp8 ? nn::weight_operands(parameter) : Operands::kPlain;
}

}  // namespace

std::string unit_name(const Module& module) {
  const std::string name = module.full_name();
  return name.empty() ? "root" : name;
}

FlatUnit::FlatUnit(ShardingContext& shared, const UnitPlan& plan, const UnitOptions& options)
    : name_(unit_name(*plan.module)),
      module_(*plan.module),
      options_(options),
      parameters_(plan.parameters),
      chunk_(plan.chunk) {
  if (!plan.part.empty()) name_ = cat(name_, " ", plan.part);
  std::map<BufferTraits, std::vector<Parameter*>> alike;
  for (Parameter* parameter : plan.parameters) {
    const bool persistent = shared.options.stage >= 3 && parameter->numel() < options.persist_below;
    const amp::Precision* own = parameter->owner->precision();
    const DType compute = own != nullptr ? own->compute : options.compute;
    alike[{.compute = nn::kept_dtype(*parameter).value_or(compute),
           .reduce = own != nullptr ? own->reduce : options.reduce,
           .trainable = parameter->trainable,
           .persistent = persistent,
           .use = plan.tied.contains(parameter) ? TableUse::kTied : TableUse::kOnly,
           .repeated = parameter->sharding.share == Share::kReplicate,
           .of_experts = parameter->sharding.is_of_experts,
           .offload = parameter->trainable ? options.offload : UnitOffload{},
           // Only matrices are sent as codes. Vectors are small, and sensitive to quantization.
           .in_codes = (shared.options.gather_code || shared.options.reduce_code) &&
                       parameter->trainable && !persistent && parameter->shape.ndim() > 1,
           .operands = persistent ? Operands::kPlain : gathered_as(shared, options, *parameter)}]
        .push_back(parameter);
  }
  for (auto& [traits, parameters] : alike) {
    std::string name = name_;
    if (traits.repeated) {
      std::stable_sort(parameters.begin(), parameters.end(), [](const auto* a, const auto* b) {
        return a->sharding.rank < b->sharding.rank;
      });
      name += " repeated";
    }
    if (traits.of_experts) name += " experts";
    if (!traits.trainable) name += " frozen";
    if (traits.compute == DType::kU8) name += " codes";
    if (traits.persistent) name += " persistent";
    if (traits.in_codes) name += " coded";
    if (traits.operands != Operands::kPlain) name += " fp8";
    if (traits.use == TableUse::kTied) name += " tied";
    buffers_.push_back(std::make_unique<FlatBuffer>(shared, std::move(name), traits, parameters));
  }
  for (const auto& buffer : buffers_) {
    if (buffer->gradient() != nullptr) gradients_.push_back(buffer->gradient());
  }
  if (plan.apart.empty()) return;
  const amp::Precision* own = plan.apart.front()->owner->precision();
  const BufferTraits apart{.compute = own != nullptr ? own->compute : options.compute,
                           .reduce = own != nullptr ? own->reduce : options.reduce,
                           .use = TableUse::kApart};
  apart_ = std::make_unique<ApartGradient>(shared, name_ + " apart", apart, plan.apart);
  gradients_.push_back(&apart_->gradient());
}

void FlatUnit::detach() {
  for (const auto& buffer : buffers_) buffer->detach();
  if (apart_ != nullptr) apart_->detach();
}

void FlatUnit::fetch_masters() {
  for (const auto& buffer : buffers_) buffer->values().fetch_masters();
}

void FlatUnit::start_unshard() {
  for (const auto& buffer : buffers_) buffer->values().start_unshard();
}

void FlatUnit::unshard() {
  start_unshard();  // starts all gathers before waiting for the first gather
  for (const auto& buffer : buffers_) buffer->values().unshard();
}

void FlatUnit::reshard() {
  for (const auto& buffer : buffers_) buffer->values().reshard(/*to_small_group=*/false);
}

void FlatUnit::reshard_after_forward() {
  ReshardAfterForward what = options_.reshard_after_forward;
  if (what == ReshardAfterForward::kAuto) {
    what = encloses_units_ ? ReshardAfterForward::kNo : ReshardAfterForward::kYes;
  }
  if (what == ReshardAfterForward::kNo) return;
  for (const auto& buffer : buffers_) {
    buffer->values().reshard(what == ReshardAfterForward::kSmallGroup);
  }
}

bool FlatUnit::gradient_ready(const FlatEntry& entry) {
  if (reduced_) {
    throw InternalError(cat("unit ", name_, ": a gradient of ", entry.parameter->full_name(),
                            " arrived after the unit's gradients had been reduced; expected all "
                            "uses of a parameter in one backward graph"));
  }
  const bool first_time = std::erase(unreached_, &entry) == 1;
  return first_time && ready();
}

void FlatUnit::prepare_backward() {
  for (FlatGradient* gradient : gradients_) gradient->prepare_backward();
}

void FlatUnit::finish_alone() {
  for (FlatGradient* gradient : gradients_) gradient->finish_alone();
}

void FlatUnit::begin_backward() {
  reduced_ = false;
  unreached_.clear();
  for (FlatGradient* gradient : gradients_) {
    gradient->begin_backward();
    for (const FlatEntry& entry : gradient->layout().entries) {
      if (entry.numel() > 0) unreached_.push_back(&entry);
    }
  }
}

void FlatUnit::start_reduce() {
  reduced_ = true;
  for (FlatGradient* gradient : gradients_) gradient->start_reduce();
}

bool FlatUnit::reduction_done() const {
  return std::all_of(gradients_.begin(), gradients_.end(),
                     [](const FlatGradient* gradient) { return gradient->reduction_done(); });
}

}  // namespace shale::comm

#include "shale/runtime/nn/module.h"

#include <algorithm>
#include <utility>

#include "shale/base/error.h"
#include "shale/kernels/elementwise.h"
#include "shale/kernels/random.h"
#include "shale/runtime/autograd/boundary.h"
#include "shale/runtime/autograd/recompute.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/tensor/tensor_impl.h"

namespace shale {
namespace {

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : cat(prefix, ".", name);
}

// Adds a backward node to the defined tensors; it calls `hook` before it passes their gradients on.
// A tensor that nothing else holds gets the node in place; another tensor is replaced by a view.
// use: a leaf, may be undefined, that becomes a further input of the node. It lets backward count
// how often the module was used.
std::vector<Tensor> with_backward_hook(const char* op, std::vector<Tensor> tensors,
                                       std::function<void()> hook, const Tensor& use = {}) {
  std::vector<Tensor> from;
  std::vector<Tensor*> hooked;
  bool wanted = false;
  for (Tensor& x : tensors) {
    if (!x.defined()) continue;
    wanted = wanted || x.requires_grad();
    hooked.push_back(&x);
    if (x.impl_ptr().use_count() == 1 && x.impl().grad_fn != nullptr) {
      from.push_back(history_of(x));
    } else {
      from.push_back(x);
      x = x.recorded_alias(x.shape(), x.strides());
    }
  }
  const size_t count = from.size();
  if (wanted && use.defined()) from.push_back(use);
  record(op, from, hooked,
         [hook = std::move(hook), count, inputs = from.size()](BackwardArgs& args) {
           hook();
           Grads grads(inputs);
           for (size_t i = 0; i < count; ++i) grads[i] = args.dy(static_cast<int>(i));
           return grads;
         });
  return tensors;
}

// Creates parameter.value: a leaf without memory.
void make_value(Parameter& parameter) {
  auto impl = std::make_shared<TensorImpl>();
  impl->shape = parameter.shape;
  impl->strides = contiguous_strides(parameter.shape);
  parameter.value = Tensor(std::move(impl));
  leaf_state(parameter.value).name = parameter.full_name();
}

// Returns another leaf for the memory of a parameter. The memory is not allocated yet.
Tensor leaf_like(const Parameter& parameter, const std::string& suffix) {
  auto impl = std::make_shared<TensorImpl>();
  impl->shape = parameter.shape;
  impl->strides = contiguous_strides(parameter.shape);
  impl->version = parameter.value.impl().version;
  Tensor leaf(std::move(impl));
  leaf_state(leaf).name = leaf_state(parameter.value).name + suffix;
  return leaf;
}

}  // namespace

std::string Parameter::full_name() const {
  return join(owner->full_name(), name);
}

std::string Buffer::full_name() const {
  return join(owner->full_name(), name);
}

bool Buffer::needs_memory() const {
  return value.defined() && value.impl().storage == nullptr;
}

void Buffer::bind(Context& context) {
  TensorImpl& impl = value.impl();
  impl.context = &context;
  impl.storage =
      context.allocate(shape.numel() * dtype_size(impl.dtype), MemoryTag::kParameter, full_name());
  kernels::fill(context.exec(), {.y = value, .value = initial});
}

void Buffer::unbind() {
  value.impl().storage.reset();
}

Tensor Parameter::added_value() const {
  return sharding.share == Share::kFirst && sharding.rank > 0 ? Tensor() : value;
}

void Parameter::bind(Context& context, std::shared_ptr<Storage> storage, int64_t offset,
                     DType dtype) {
  for_each_value([&](Tensor& leaf) {
    TensorImpl& impl = leaf.impl();
    impl.context = &context;
    impl.storage = storage;
    impl.offset = offset;
    impl.dtype = dtype;
    impl.requires_grad = trainable;
  });
}

void Parameter::for_each_value(const std::function<void(Tensor&)>& visit) {
  visit(value);
  if (tied_value.defined()) visit(tied_value);
  for (Parameter* copy : copies) copy->for_each_value(visit);
}

void Parameter::unbind() {
  for_each_value([](Tensor& leaf) {
    leaf.impl().storage.reset();
    if (leaf.impl().leaf != nullptr) leaf.impl().leaf->drop_copies();
  });
}

void Parameter::keep_apart(bool apart) {
  tied_value = apart ? leaf_like(*this, " (output)") : Tensor();
  for (Parameter* copy : copies) copy->keep_apart(apart);
}

void Parameter::add_copy(Parameter& copy) {
  copy.value.impl().version = value.impl().version;
  copies.push_back(&copy);
}

void Parameter::shard(const Sharding& of_rank) {
  if (value.impl().storage != nullptr || sharding.share != Share::kWhole) {
    throw ConfigError(
        cat("sharding: ", full_name(),
            " is sharded already, or has memory; shard it once, before it has memory"));
  }
  check_sharding(full_name(), whole, of_rank, split.unit);
  sharding = of_rank;
  shape = part_shape(whole, sharding);
  if (sharding.share == Share::kShard && sharding.groups < matrices) matrices = 1;
  make_value(*this);
  peers = {this};
}

void Parameter::write_initial(const Exec& exec, uint64_t seed, int64_t begin,
                              const View& to) const {
  if (init.std == 0) {
    kernels::fill(exec, {.y = to, .value = init.mean});
    return;
  }
  const uint64_t stream = hash_name(full_name());
  for_each_rows(whole, sharding, begin, to.numel(), [&](const PartRows& some) {
    kernels::random_normal(exec, {.y = to.flat(some.in_part - begin, some.run * some.rows),
                                  .seed = seed,
                                  .stream = stream,
                                  .first = some.in_whole,
                                  .run = some.rows > 1 ? some.run : 0,
                                  .stride = some.rows > 1 ? some.stride : 0,
                                  .mean = init.mean,
                                  .std = init.std});
  });
}

Module::Module(Module* parent, std::string name) : name_(std::move(name)), parent_(parent) {
  for (const Module* sibling : parent_->children_) {
    if (sibling->name_ == name_) {
      throw InternalError(cat("module: ", parent_->full_name(), " has two children ", name_));
    }
  }
  parent_->children_.push_back(this);
}

std::string Module::full_name() const {
  return parent_ == nullptr ? name_ : join(parent_->full_name(), name_);
}

Parameter& Module::declare(std::string name, const Shape& shape, Init init, bool decay) {
  for (const auto& parameter : parameters_) {
    if (parameter->name == name) {
      throw InternalError(cat("module: ", full_name(), " declares ", name, " twice"));
    }
  }
  auto parameter = std::make_unique<Parameter>();
  parameter->name = std::move(name);
  parameter->shape = parameter->whole = shape;
  parameter->init = init;
  parameter->decay = decay;
  parameter->owner = this;
  make_value(*parameter);
  parameters_.push_back(std::move(parameter));
  return *parameters_.back();
}

const nn::Distribution& Module::distribution() const {
  static const nn::Distribution one_rank;
  for (const Module* module = this; module != nullptr; module = module->parent_) {
    if (module->distribution_ != nullptr) return *module->distribution_;
  }
  return one_rank;
}

Buffer& Module::declare_buffer(Buffer buffer) {
  for (const auto& other : buffers_) {
    if (other->name == buffer.name) {
      throw InternalError(
          cat("module: ", full_name(), " declares the buffer ", buffer.name, " twice"));
    }
  }
  buffer.owner = this;
  auto impl = std::make_shared<TensorImpl>();
  impl->shape = buffer.shape;
  impl->strides = contiguous_strides(buffer.shape);
  buffer.value = Tensor(std::move(impl));
  buffers_.push_back(std::make_unique<Buffer>(std::move(buffer)));
  return *buffers_.back();
}

std::vector<Parameter*> Module::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& parameter : parameters_) all.push_back(parameter.get());
  for (const Module* child : children_) {
    for (Parameter* parameter : child->parameters()) all.push_back(parameter);
  }
  return all;
}

std::vector<Buffer*> Module::buffers() const {
  std::vector<Buffer*> all;
  for (const auto& buffer : buffers_) all.push_back(buffer.get());
  for (const Module* child : children_) {
    for (Buffer* buffer : child->buffers()) all.push_back(buffer);
  }
  return all;
}

Parameter* Module::find_parameter(std::string_view wanted) const {
  for (Parameter* parameter : parameters()) {
    if (parameter->full_name() == wanted) return parameter;
  }
  return nullptr;
}

uint64_t Module::add_hook(HookPoint point, Hook hook) {
  hooks_[static_cast<size_t>(point)].emplace(next_hook_, std::move(hook));
  return next_hook_++;
}

void Module::remove_hook(HookPoint point, uint64_t id) {
  hooks_[static_cast<size_t>(point)].erase(id);
}

void Module::set_precision(const amp::Precision& precision) {
  amp::check(precision);
  precision_ = precision;
}

const amp::Precision* Module::precision() const {
  for (const Module* module = this; module != nullptr; module = module->parent_) {
    if (module->precision_.has_value()) return &*module->precision_;
  }
  return nullptr;
}

void Module::set_recompute(Recompute level) {
  if (!runs()) {
    throw ConfigError(cat("recompute: ", full_name(), " has no forward of its own; use a ",
                          "module that contains it",
                          parent_ != nullptr ? cat(": ", parent_->full_name()) : ""));
  }
  recompute_ = level;
}

Tensor Module::enter(const Tensor& x) const {
  if (!precision_.has_value() || !x.defined() || !is_float(x.dtype())) return x;
  return cast(x, precision_->compute);
}

Tensor Module::leave(const Tensor& y) const {
  if (!precision_.has_value() || !precision_->output.has_value() || !y.defined()) return y;
  return cast(y, *precision_->output);
}

void Module::call_hooks(HookPoint point) const {
  for (const auto& [id, hook] : hooks(point)) hook();
}

Tensor Module::counted_use(Context& context) {
  if (!uses_.defined()) {
    auto impl = std::make_shared<TensorImpl>();
    impl->requires_grad = true;
    uses_ = Tensor(std::move(impl));
    leaf_state(uses_).ready_hooks.push_back([this] {
      if (!std::exchange(has_open_use_, false)) call_hooks(HookPoint::kAfterLastBackward);
    });
  }
  uses_.impl().context = &context;
  return uses_;
}

Tensor Module::run(const Tensor& x, const std::function<Tensor(const Tensor&)>& body) {
  return run(Tensors{x}, [body](const Tensors& in) { return Tensors{body(in.front())}; }).front();
}

Tensor Module::run(const Tensor& x, const Tensor& residual,
                   const std::function<Tensor(const Tensor&, const Tensor&)>& body) {
  return run(Tensors{x, residual},
             [body](const Tensors& in) { return Tensors{body(in[0], in[1])}; })
      .front();
}

Module::Tensors Module::run(const Tensors& inputs,
                            const std::function<Tensors(const Tensors&)>& body) {
  if (recompute_ == Recompute::kNone) return run_once(inputs, body);
  return recompute(
      recompute_, [this, body](const Tensors& in) { return run_once(in, body); }, inputs);
}

Module::Tensors Module::run_once(const Tensors& inputs,
                                 const std::function<Tensors(const Tensors&)>& body) {
  call_hooks(HookPoint::kBeforeForward);
  const bool last = !hooks(HookPoint::kAfterLastBackward).empty();
  const bool after = last || !hooks(HookPoint::kAfterBackward).empty();
  const bool before = !hooks(HookPoint::kBeforeBackward).empty();
  const Tensor use = last ? counted_use(inputs.front().context()) : Tensor();
  // True if no input needs a gradient. Then there is no after_backward hook to mark the end of this
  // use in backward.
  const bool open = last && std::none_of(inputs.begin(), inputs.end(), [](const Tensor& x) {
                      return x.defined() && x.requires_grad();
                    });
  Tensors results;
  try {
    Tensors in = inputs;
    if (after) {
      const auto hook = [this] { call_hooks(HookPoint::kAfterBackward); };
      in = with_backward_hook("after_backward", inputs, hook, use);
    }
    for (Tensor& x : in) x = enter(x);
    results = body(in);
    for (Tensor& y : results) y = leave(y);
  } catch (...) {
    call_hooks(HookPoint::kAfterForward);
    throw;
  }
  if (before || open) {
    const auto hook = [this, open] {
      if (open) has_open_use_ = true;
      call_hooks(HookPoint::kBeforeBackward);
    };
    results =
        with_backward_hook("before_backward", std::move(results), hook, open ? use : Tensor());
  }
  call_hooks(HookPoint::kAfterForward);
  return results;
}

int64_t whole_numel(const Module& module) {
  int64_t count = 0;
  for (const Parameter* parameter : module.parameters()) {
    count += parameter->whole.numel();
  }
  return count;
}

std::vector<Parameter*> whole_parameters(const Module& module) {
  std::vector<Parameter*> parameters = module.parameters();
  std::erase_if(parameters, [](const Parameter* parameter) {
    return parameter->sharding.share != Share::kWhole && parameter->peers.empty();
  });
  return parameters;
}

void materialize(Module& module, Context& context, DType default_dtype, uint64_t seed) {
  for (Parameter* parameter : module.parameters()) {
    const TensorImpl& impl = parameter->value.impl();
    const bool is_sharded = impl.leaf->allocate_grad != nullptr || !impl.leaf->ready_hooks.empty();
    if (impl.storage != nullptr || is_sharded) {
      throw InternalError(cat("materialize: ", parameter->full_name(),
                              " has memory already, by materialize(), fully_shard() or "
                              "DataParallel; use one of them, once"));
    }
    const amp::Precision* precision = parameter->owner->precision();
    const DType dtype = precision != nullptr ? precision->compute : default_dtype;
    auto storage = context.allocate(parameter->numel() * dtype_size(dtype), MemoryTag::kParameter,
                                    parameter->full_name());
    parameter->bind(context, std::move(storage), 0, dtype);
    parameter->write_initial(context.exec(), seed, 0, parameter->value);
  }
  for (Buffer* buffer : module.buffers()) {
    if (buffer->needs_memory()) buffer->bind(context);
  }
}

}  // namespace shale

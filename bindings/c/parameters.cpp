// Parameters by index and by name.
#include <algorithm>

#include "shale/bindings/c/memory.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/data/sharded_parameter.h"

namespace shale::c {
namespace {

// Returns the first few parameter names, for error messages.
std::string names_of(const Module& module) {
  constexpr size_t kShown = 8;
  std::string list;
  const std::vector<Parameter*> all = module.parameters();
  for (size_t i = 0; i < std::min(all.size(), kShown); ++i) list += cat(" ", all[i]->full_name());
  return all.size() > kShown ? cat(list, " and ", all.size() - kShown, " more") : list;
}

comm::ShardedParameter sharded(const ModuleObject& root, const char* name) {
  const Parameter* parameter = root.module->find_parameter(wanted(name, "name"));
  if (parameter == nullptr) {
    fail_argument("there is no parameter \"", name, "\", expected one of", names_of(*root.module));
  }
  comm::DataParallel& parallel = comm::data_parallel_of(*root.module);
  for (const auto& unit : parallel.units()) {
    for (const Module* module = parameter->owner; module != nullptr; module = module->parent()) {
      if (module == &unit->module()) return {parallel, *parameter};
    }
  }
  throw CallError(SHALE_ERROR_STATE,
                  cat(parameter->full_name(),
                      " is not in a sharded module; call shale_module_shard() for the root first"));
}

void check_count(const comm::ShardedParameter& parameter, int64_t count) {
  if (count != parameter.shape().numel()) {
    fail_argument("count is ", count, ", expected ", parameter.shape().numel(), " for ",
                  parameter.name(), " ", parameter.shape());
  }
}

void write(const comm::ShardedParameter& parameter, const float* from) {
  parameter.distribute(make_view(const_cast<float*>(wanted(from, "from")), parameter.shape()));
}

shale_parameter_info describe(const Parameter& parameter) {
  shale_parameter_info info = SHALE_PARAMETER_INFO_INIT;
  give_text(parameter.full_name(), info.name, sizeof(info.name), "name");
  info.ndim = parameter.shape.ndim();
  for (int i = 0; i < info.ndim; ++i) info.shape[i] = parameter.shape[i];
  info.decay = parameter.decay ? 1 : 0;
  info.trainable = parameter.trainable ? 1 : 0;
  return info;
}

}  // namespace
}  // namespace shale::c

using namespace shale::c;
using shale::Tensor;

shale_status shale_module_parameter_count(shale_module module, int64_t* out) {
  return call("shale_module_parameter_count", [&] {
    *wanted(out, "out") = static_cast<int64_t>(module_of(module)->module->parameters().size());
  });
}

shale_status shale_module_parameter(shale_module module, int64_t index, shale_parameter_info* out) {
  return call("shale_module_parameter", [&] {
    const auto all = module_of(module)->module->parameters();
    if (index < 0 || index >= static_cast<int64_t>(all.size())) {
      fail_argument("index is ", index, ", expected 0 to below ", all.size());
    }
    give(describe(*all[static_cast<size_t>(index)]), out, "out");
  });
}

shale_status shale_module_value(shale_module module, const char* name, shale_tensor* out) {
  return call_for_tensor("shale_module_value", out, [&]() -> Tensor {
    const auto object = module_of(module);
    wanted(name, "name");
    for (const auto& parameter : object->module->own_parameters()) {
      if (parameter->name == name) return parameter->value;
    }
    fail_argument("the module has no parameter \"", name, "\" of its own, expected one of",
                  names_of(*object->module));
  });
}

shale_status shale_parameter_read(shale_module root, const char* name, float* to, int64_t count) {
  return call("shale_parameter_read", [&] {
    const auto parameter = sharded(*sharded_root_of(root), name);
    check_count(parameter, count);
    wanted(to, "to");
    const Tensor whole = parameter.full();
    whole.context().copy(to, whole.data(), whole.bytes());
    whole.context().synchronize();
  });
}

shale_status shale_parameter_write(shale_module root, const char* name, const float* from,
                                   int64_t count) {
  return call("shale_parameter_write", [&] {
    const auto parameter = sharded(*sharded_root_of(root), name);
    check_count(parameter, count);
    write(parameter, from);
  });
}

shale_status shale_parameter_write_shaped(shale_module root, const char* name, int32_t ndim,
                                          const int64_t* shape, const float* from) {
  return call("shale_parameter_write_shaped", [&] {
    const auto parameter = sharded(*sharded_root_of(root), name);
    const shale::Shape given = shape_of(ndim, shape, "shape");
    if (!(given == parameter.shape())) {
      fail_argument("shape is ", given, ", expected ", parameter.shape(), " for ",
                    parameter.name());
    }
    write(parameter, from);
  });
}

shale_status shale_parameter_local(shale_module root, const char* name, int64_t* begin,
                                   shale_tensor* out) {
  return call_for_tensor("shale_parameter_local", out, [&] {
    const auto parameter = sharded(*sharded_root_of(root), name);
    if (begin != nullptr) *begin = parameter.local_range().begin;
    return parameter.local();
  });
}

shale_status shale_parameter_local_grad(shale_module root, const char* name, shale_tensor* out) {
  return call("shale_parameter_local_grad", [&] {
    wanted(out, "out");
    const Tensor grad = sharded(*sharded_root_of(root), name).local_grad();
    if (grad.defined()) return give_tensor(grad, out);
    *out = nullptr;
  });
}

shale_status shale_parameter_local_changed(shale_module root, const char* name) {
  return call("shale_parameter_local_changed",
              [&] { sharded(*sharded_root_of(root), name).local_changed(); });
}

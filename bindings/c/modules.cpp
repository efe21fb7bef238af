// Modules implemented by the program, language models, and their sharding over ranks.
#include <cmath>
#include <span>

#include "shale/base/config.h"
#include "shale/base/json.h"
#include "shale/bindings/c/memory.h"
#include "shale/bindings/c/session.h"
#include "shale/comm/parallel/data/fully_shard.h"
#include "shale/comm/parallel/data/sharded_parameter.h"
#include "shale/models/language/config.h"
#include "shale/models/language/family.h"
#include "shale/runtime/export/onnx.h"

namespace shale::c {
namespace {

// Module whose forward is implemented by the program.
class ProgramModule : public Module {
 public:
  using Module::Module;
  void add(const std::string& name, const Shape& shape, const shale_parameter_options& options) {
    for (const auto& parameter : own_parameters()) {
      if (parameter->name == name)
        fail_argument("name is \"", name, "\", which is already declared");
    }
    checked_number(options.mean, "options->mean", -INFINITY);
    checked_number(options.std, "options->std", 0);
    const Init init{.mean = options.mean, .std = options.std};
    declare(name, shape, init, options.no_decay == 0).trainable = options.frozen == 0;
  }
  std::vector<Tensor> call(
      const std::vector<Tensor>& inputs,
      const std::function<std::vector<Tensor>(const std::vector<Tensor>&)>& body) {
    return run(inputs, body);
  }
};

ProgramModule& program_module(const ModuleObject& object) {
  auto* module = dynamic_cast<ProgramModule*>(object.module);
  if (module == nullptr) {
    fail_argument("module is a language model, expected a module of shale_module_create()");
  }
  return *module;
}

void check_not_sharded(const Tree& tree) {
  if (tree.root().attachment() == nullptr) return;
  throw CallError(SHALE_ERROR_STATE,
                  "the model was sharded, so its modules cannot change any more");
}

std::string checked_name(const char* name) {
  const std::string text = wanted(name, "name");
  if (text.empty() || text.size() >= SHALE_MAX_NAME || text.find('.') != text.npos) {
    fail_argument("name is \"", text, "\", expected 1 to ", SHALE_MAX_NAME - 1, " bytes, no dot");
  }
  return text;
}

void give_module(std::shared_ptr<Tree> tree, Module* module, shale_module* out) {
  auto object = std::make_shared<ModuleObject>();
  object->tree = std::move(tree);
  object->module = module;
  *out = static_cast<shale_module>(add_handle(Kind::kModule, std::move(object)));
}

// Handles of tensors that are passed to a callback, valid until it returns.
class TensorHandles {
 public:
  explicit TensorHandles(const std::vector<Tensor>& tensors) {
    for (const Tensor& tensor : tensors) {
      shale_tensor handle = nullptr;
      if (tensor.defined()) give_tensor(tensor, &handle);
      handles_.push_back(handle);
    }
  }
  explicit TensorHandles(size_t count) : handles_(count, nullptr) {}
  ~TensorHandles() {
    for (const shale_tensor handle : handles_) {
      try {
        if (handle != nullptr) take_handle(Kind::kTensor, handle, "input");
      } catch (const std::exception&) {
        continue;  // the callback has already destroyed this handle
      }
    }
  }
  TensorHandles(const TensorHandles&) = delete;
  TensorHandles& operator=(const TensorHandles&) = delete;
  shale_tensor* data() { return handles_.data(); }
  int32_t size() const { return static_cast<int32_t>(handles_.size()); }
  std::vector<Tensor> tensors(const char* argument) const {
    std::vector<Tensor> list;
    for (const shale_tensor handle : handles_) list.push_back(tensor_of(handle, argument));
    return list;
  }

 private:
  std::vector<shale_tensor> handles_;
};

std::vector<Tensor> call_body(const Module& module, shale_body body, void* user,
                              const std::vector<Tensor>& inputs, size_t output_count) {
  TensorHandles in(inputs), out(output_count);
  forget_last_error();
  const shale_status status = body(user, in.data(), in.size(), out.data(), out.size());
  if (status != SHALE_OK) {
    const std::string why = last_error();
    throw CallError(
        status, cat("the body of ", module.full_name().empty() ? "the root" : module.full_name(),
                    " returned ", status, why.empty() ? "" : ": ", why));
  }
  return out.tensors("outputs of the body");
}

void check_count(std::string_view argument, int32_t count, int32_t least) {
  constexpr int32_t kMost = 1024;
  if (count < least || count > kMost) {
    fail_argument(argument, " is ", count, ", expected ", least, " to ", kMost);
  }
}

comm::DataParallelOptions parallel_options(const shale_shard_options& given) {
  const DType compute = dtype_of_code(given.compute);
  if (!is_float(compute) || compute == DType::kF64) {
    throw ConfigError(cat("options->compute is ", dtype_name(compute),
                          ", expected SHALE_F32, SHALE_BF16 or SHALE_F16"));
  }
  return {.compute = compute,
          .reduce = dtype_of_code(given.reduce),
          .stage = given.stage,
          .overlap = given.no_overlap == 0,
          .reproducible = given.reproducible != 0,
          .seed = given.seed};
}

models::LanguageModelConfig language_config(const char* name,
                                            const shale_language_model_options& given) {
  constexpr int64_t kContext = 256;
  // The model takes the options of train_lm with these names, and has their limits.
  Json options = {{"model", wanted(name, "preset")}};
  if (given.dropout != 0) {
    options["dropout"] = checked_number(given.dropout, "options->dropout", -INFINITY);
  }
  for (const auto& [key, size] : {std::pair("seq_len", given.context),
                                  {"layers", given.layers},
                                  {"width", given.width},
                                  {"heads", given.heads},
                                  {"vocab", given.vocab},
                                  {"kv_heads", given.kv_heads},
                                  {"hidden", given.hidden}}) {
    if (size != 0) options[key] = size;
  }
  models::TrainConfig checked;
  ConfigSpec spec("shale", "");
  describe(spec, checked, /*needs_data=*/false);
  spec.read_json(options.dump(), "options");
  models::LanguageModelConfig config =
      models::preset(name, given.context > 0 ? given.context : kContext);
  if (given.context > 0) config.context = given.context;
  if (given.layers > 0) config.layers = given.layers;
  if (given.width > 0) config.width = given.width;
  if (given.heads > 0) config.heads = given.heads;
  if (given.kv_heads > 0) config.kv_heads = given.kv_heads;
  if (given.hidden > 0) config.hidden = given.hidden;
  if (given.vocab > 0) {
    config.vocab = given.vocab;
    config.padded_vocab = models::pad_vocab(given.vocab);
  }
  return config;
}

// Checked arguments of a call that runs a module's body.
struct Run {
  Run(shale_module handle, shale_body its_body, int32_t input_count, const shale_tensor* tensors,
      int32_t output_count)
      : module(module_of(handle)), body(its_body), outputs(static_cast<size_t>(output_count)) {
    if (body == nullptr) fail_argument("body is NULL");
    check_count("input_count", input_count, 1);
    check_count("output_count", output_count, 1);
    wanted(tensors, "inputs");
    for (int32_t i = 0; i < input_count; ++i) inputs.push_back(tensor_of(tensors[i], "inputs"));
  }
  std::vector<Tensor> operator()(const std::vector<Tensor>& in, void* user) const {
    ProgramModule& own = program_module(*module);
    return own.call(in, [&](const std::vector<Tensor>& given) {
      return call_body(own, body, user, given, outputs);
    });
  }
  std::shared_ptr<ModuleObject> module;
  shale_body body;
  size_t outputs;
  std::vector<Tensor> inputs;
};

}  // namespace
}  // namespace shale::c

using namespace shale::c;
using shale::Tensor;

shale_status shale_module_create(shale_runtime runtime, shale_module parent, const char* name,
                                 shale_module* out) {
  return call("shale_module_create", [&] {
    check_runtime(runtime);
    wanted(out, "out");
    if (parent == nullptr) {
      auto tree = std::make_shared<Tree>();
      tree->modules.push_back(std::make_unique<ProgramModule>());
      return give_module(tree, tree->modules.front().get(), out);
    }
    const auto above = module_of(parent, "parent");
    check_not_sharded(*above->tree);
    const std::string own = checked_name(name);
    for (const shale::Module* sibling : program_module(*above).children()) {
      if (sibling->name() != own) continue;
      fail_argument("name is \"", own, "\", and parent has a module of that name");
    }
    auto module = std::make_unique<ProgramModule>(&program_module(*above), own);
    above->tree->modules.push_back(std::move(module));
    give_module(above->tree, above->tree->modules.back().get(), out);
  });
}

shale_status shale_module_destroy(shale_module module) {
  return call("shale_module_destroy", [&] {
    session();
    retire(
        std::static_pointer_cast<ModuleObject>(take_handle(Kind::kModule, module, "module"))->tree);
  });
}

shale_status shale_module_declare(shale_module module, const char* name, int32_t ndim,
                                  const int64_t* shape, const shale_parameter_options* options) {
  return call("shale_module_declare", [&] {
    const auto object = module_of(module);
    check_not_sharded(*object->tree);
    const shale_parameter_options defaults = SHALE_PARAMETER_OPTIONS_INIT;
    const shale_parameter_options given = options_of(options, defaults, "options");
    program_module(*object).add(checked_name(name), shape_of(ndim, shape, "shape"), given);
  });
}

shale_status shale_module_run(shale_module module, shale_body body, void* user, int32_t input_count,
                              const shale_tensor* inputs, int32_t output_count,
                              shale_tensor* outputs) {
  return call("shale_module_run", [&] {
    const Run run(module, body, input_count, inputs, output_count);
    wanted(outputs, "outputs");
    const std::vector<Tensor> results = run(run.inputs, user);
    for (size_t i = 0; i < results.size(); ++i) give_tensor(results[i], &outputs[i]);
  });
}

shale_status shale_module_export_onnx(shale_module module, shale_body body, void* user,
                                      int32_t input_count, const shale_tensor* inputs,
                                      int32_t output_count, const char* path, char* text,
                                      size_t capacity) {
  return call("shale_module_export_onnx", [&] {
    check_not_in_callback();
    const Run run(module, body, input_count, inputs, output_count);
    const std::string to = wanted(path, "path");
    const auto forward = [&](const std::vector<Tensor>& in) { return run(in, user); };
    const shale::OnnxExport done = shale::export_onnx(*run.module->module, forward, run.inputs,
                                                      to.empty() ? to : checked_path(path, "path"));
    give_text(done.fixed_batch.substr(0, capacity > 0 ? capacity - 1 : 0), text, capacity, "text");
  });
}

shale_status shale_language_model_create(shale_runtime runtime, const char* preset,
                                         const shale_language_model_options* options,
                                         shale_module* out) {
  return call("shale_language_model_create", [&] {
    check_runtime(runtime);
    wanted(out, "out");
    const shale_language_model_options defaults = SHALE_LANGUAGE_MODEL_OPTIONS_INIT;
    const auto given = options_of(options, defaults, "options");
    auto model = shale::models::make_language_model(language_config(preset, given),
                                                    {.dropout = given.dropout});
    auto tree = std::make_shared<Tree>();
    for (shale::Module* block : model->blocks()) tree->units.push_back(block);
    tree->modules.push_back(std::move(model));
    give_module(tree, tree->modules.front().get(), out);
  });
}

shale_status shale_language_model_loss(shale_module model, shale_tensor ids, shale_tensor targets,
                                       shale_tensor* out) {
  return call_for_tensor("shale_language_model_loss", out, [&] {
    const auto object = module_of(model, "model");
    auto* language = dynamic_cast<shale::models::LanguageModel*>(object->module);
    if (language == nullptr) fail_argument("model is not a language model");
    check_sharded(*object->tree);
    return language->loss(tensor_of(ids, "ids"), tensor_of(targets, "targets"));
  });
}

shale_status shale_module_shard(shale_module module, const shale_shard_options* options) {
  return call("shale_module_shard", [&] {
    check_not_in_callback();
    const auto object = module_of(module);
    const shale_shard_options defaults = SHALE_SHARD_OPTIONS_INIT;
    const auto parallel = parallel_options(options_of(options, defaults, "options"));
    Session& s = session();
    Tree& tree = *object->tree;
    const bool is_root = object->module == &tree.root();
    const bool was_sharded = tree.root().attachment() != nullptr;
    try {
      if (is_root && dynamic_cast<ProgramModule*>(object->module) == nullptr) {
        check_not_sharded(tree);
        for (shale::Module* unit : tree.units)
          shale::comm::fully_shard(*unit, *s.context, *s.group, parallel);
      }
      shale::comm::fully_shard(*object->module, *s.context, *s.group, parallel);
    } catch (...) {
      // If no unit was sharded, remove the attachment: the model is unchanged, and the program may
      // try other options.
      if (!was_sharded && tree.root().attachment() != nullptr &&
          shale::comm::data_parallel_of(tree.root()).units().empty()) {
        tree.root().attach(nullptr);
      }
      throw;
    }
    if (!is_root) tree.units.push_back(object->module);
  });
}

shale_status shale_module_begin_backward(shale_module root, int32_t last) {
  return call("shale_module_begin_backward", [&] {
    shale::comm::data_parallel_of(*sharded_root_of(root)->module).begin_backward(last != 0);
  });
}

shale_status shale_mean_over_ranks(shale_module root, shale_tensor loss, double weight,
                                   shale_tensor* out) {
  return call_for_tensor("shale_mean_over_ranks", out, [&] {
    const auto model = sharded_root_of(root);
    checked_number(weight, "weight", 0);
    return shale::comm::mean_over_ranks(*model->module, tensor_of(loss, "loss"), weight);
  });
}

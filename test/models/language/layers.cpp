// Tests that the layers of every family meet the requirements of data parallelism and
// recomputation.
#include <map>

#include "shale/base/error.h"
#include "shale/models/language/family.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"

namespace shale::models {
namespace {

// Calls `visit` for a module and all its descendants.
void walk(Module& module, const std::function<void(Module&)>& visit) {
  visit(module);
  for (Module* child : module.children()) walk(*child, visit);
}

LanguageModelConfig small(const ModelFamily& family) {
  LanguageModelConfig config = family.presets().front().config;
  config.layers = 2;
  config.width = 32;
  config.heads = 4;
  config.context = 8;
  config.vocab = 50;
  config.padded_vocab = pad_vocab(config.vocab);
  if (config.kv_heads > 0) config.kv_heads = 2;
  if (config.head_size > 0) config.head_size = 8;
  if (config.hidden > 0) config.hidden = 64;
  return config;
}

// How often each hook of a module was called, by module name and HookPoint.
using Calls = std::map<std::string, std::array<int, 4>>;

Calls count_hooks(LanguageModel& model, Context& context) {
  Calls calls;
  walk(model, [&calls](Module& module) {
    std::array<int, 4>& counts = calls[module.full_name()];
    for (size_t point = 0; point < counts.size(); ++point) {
      module.add_hook(static_cast<HookPoint>(point), [&counts, point] { ++counts[point]; });
    }
  });
  const Tensor ids = zeros(context, {2, 8}, DType::kI32);
  backward(model.loss(ids, ids));
  return calls;
}

}  // namespace

TEST_CASE("every layer of every family that runs by itself has all hooks called, once") {
  for (const ModelFamily* family : own_model_families()) {
    Context context(test::small_context());
    const auto model = make_language_model(small(*family));
    materialize(*model, context, DType::kF32, 1);
    const Calls calls = count_hooks(*model, context);
    walk(*model, [&](Module& module) {
      CAPTURE(family->name(), module.full_name());
      const std::array<int, 4>& counts = calls.at(module.full_name());
      // The model's own inputs are tokens, which have no gradient.
      const bool has_input_gradient = module.parent() != nullptr;
      const int once = module.runs() ? 1 : 0;
      CHECK(counts[size_t(HookPoint::kBeforeForward)] == once);
      CHECK(counts[size_t(HookPoint::kAfterForward)] == once);
      CHECK(counts[size_t(HookPoint::kBeforeBackward)] == once);
      CHECK(counts[size_t(HookPoint::kAfterBackward)] == (has_input_gradient ? once : 0));
    });
  }
}

}  // namespace shale::models

// Compares adapters over weights of 16, 8 and 4 bits with adapters over the same rounded weights
// stored in f32.
#include "shale/runtime/nn/frozen.h"

#include <algorithm>
#include <array>
#include <optional>

#include "shale/comm/world.h"
#include "shale/models/language/stored_model.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/op_check.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

using nn::FrozenDType;

models::LanguageModelConfig small_llama(int64_t width) {
  return {.family = "llama",
          .layers = 2,
          .width = width,
          .heads = 2,
          .vocab = 100,
          .padded_vocab = 128,
          .context = 16,
          .tied = false,
          .kv_heads = 1,
          .hidden = 2 * width};
}

// A stored model with random values. Values of linear layers are exactly representable in the
// dtype.
class RoundedModel final : public models::StoredModel {
 public:
  RoundedModel(const models::LanguageModelConfig& config, FrozenDType rounded)
      : config_(config), rounded_(rounded), model_(models::make_language_model(config)) {}

  const models::LanguageModelConfig& config() const override { return config_; }
  void read(std::string_view name, const View& to, int64_t first_row) const override {
    const Parameter& parameter = *model_->find_parameter(name);
    const int64_t row = parameter.numel() / parameter.shape[0];
    parameter.write_initial(Exec{}, /*seed=*/3, first_row * row, to);
    const auto* const layer = dynamic_cast<const nn::LinearWeights*>(parameter.owner);
    if (layer == nullptr || &layer->weight != &parameter) return;
    for (int64_t i = 0; i < to.size(0); ++i) round(to.as<float>() + i * row, row);
  }

 private:
  void round(float* row, int64_t columns) const {
    if (rounded_ == FrozenDType::kBF16) {
      std::transform(row, row + columns, row, [](float x) { return to_f32(bf16(x)); });
    } else if (const auto code = nn::code_of(rounded_)) {
      std::vector<uint8_t> bytes(size_t(kernels::coded_row_bytes(*code, columns)));
      kernels::encode_row(*code, row, columns, bytes.data());
      kernels::decode_row(*code, bytes.data(), columns, row);
    }
  }

  models::LanguageModelConfig config_;
  FrozenDType rounded_;
  std::unique_ptr<models::LanguageModel> model_;
};

// A model with adapters on one rank. The B matrices of its adapters are random, instead of 0.
struct Run {
  Run(FrozenDType rounded, FrozenDType kept, int stage = 0, Recompute recompute = Recompute::kNone)
      : stored(small_llama(64), rounded), model(models::make_language_model(stored.config())) {
    nn::add_adapters(*model, {.rank = 4, .alpha = 8}, {nn::kAllLinear});
    if (kept != FrozenDType::kCompute) nn::keep_frozen(*model, kept);
    for (Module* block : model->blocks()) block->set_recompute(recompute);
    parallel.emplace(*model, model->blocks(), context, *group,
                     comm::DataParallelOptions{.stage = stage});
    models::load_stored_model(stored, *parallel, nullptr, /*seed=*/7);
    for (const nn::LinearWeights* layer : nn::adapted_layers(*model)) {
      layer->adapter()->b.weight.init = Init::normal(0.1f);
    }
    models::load_stored_model(stored, *parallel, nullptr, /*seed=*/7);
  }
  Tensor ids() {
    constexpr std::array<int32_t, 8> kIds = {1, 9, 7, 40, 5, 6, 99, 0};
    return from_host<int32_t>(context, kIds, {2, 4});
  }
  Tensor forward() {
    context.update_step([](StepState& s) { s.grad_scale = 1; });
    return model->loss(ids(), ids());
  }
  // Returns the loss followed by the gradients of all adapters.
  std::vector<float> step() {
    const Tensor loss = forward();
    parallel->begin_backward(true);
    backward(loss);
    parallel->finish_gradients();
    std::vector<float> all = to_host<float>(loss);
    for (const OptimShard& shard : parallel->shards()) {
      const std::vector<float> grad = to_host<float>(shard.grad);
      all.insert(all.end(), grad.begin(), grad.end());
    }
    return all;
  }

  RoundedModel stored;
  comm::World world{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group = world.group();
  Context context{small_context()};
  std::unique_ptr<models::LanguageModel> model;
  std::optional<comm::DataParallel> parallel;
};

constexpr std::array kKept = {FrozenDType::kBF16, FrozenDType::kInt8, FrozenDType::kNf4};

}  // namespace

TEST_CASE("a step over weights in few bits has the bits of one over what they stand for in f32") {
  for (const FrozenDType dtype : kKept) {
    const std::vector<float> want = Run(dtype, FrozenDType::kCompute).step();
    CHECK(want != Run(FrozenDType::kCompute, FrozenDType::kCompute).step());
    for (const int stage : {0, 3}) {
      for (const Recompute recompute : {Recompute::kNone, Recompute::kFull}) {
        CAPTURE(nn::frozen_dtype_name(dtype), stage, int(recompute));
        CHECK(Run(FrozenDType::kCompute, dtype, stage, recompute).step() == want);
      }
    }
  }
}

TEST_CASE("weights in few bits take the memory of their codes and scales, and nothing besides") {
  const auto tag = size_t(MemoryTag::kParameter);
  Run plain(FrozenDType::kCompute, FrozenDType::kCompute);
  const int64_t before = plain.context.allocator().stats().current[tag];
  const Tensor plain_loss = plain.forward();
  const int64_t plain_forward = plain.context.allocator().stats().allocated - before;
  for (const auto& [dtype, bits] :
       {std::pair(FrozenDType::kBF16, 16.0), std::pair(FrozenDType::kInt8, 8 + 32 / 64.0),
        std::pair(FrozenDType::kNf4, 4 + 32 / 64.0)}) {
    CAPTURE(nn::frozen_dtype_name(dtype));
    Run run(FrozenDType::kCompute, dtype);
    const int64_t held = run.context.allocator().stats().current[tag];
    int64_t saved = 0;
    for (const nn::LinearWeights* layer : nn::adapted_layers(*run.model)) {
      const int64_t elements = layer->weight_shape().numel();
      REQUIRE(elements % comm::kFlatAlignment == 0);
      const auto bytes = int64_t(double(elements) * bits / 8);
      // A parameter of codes has one byte per element. Its memory is rounded up to a multiple of
      // kFlatAlignment elements.
      const int64_t unit = comm::kFlatAlignment;
      const int64_t padded = (bytes + unit - 1) / unit * unit;
      saved += 4 * elements - (dtype == FrozenDType::kBF16 ? bytes : padded);
    }
    CHECK(before - held == saved);
    // GEMMs do not save their dequantized weights for backward.
    const Tensor loss = run.forward();
    CHECK(run.context.allocator().stats().allocated - held == plain_forward);
  }
}

TEST_CASE("what cannot be kept in few bits is said") {
  const auto error = [](int64_t width, FrozenDType dtype) {
    const auto model = models::make_language_model(small_llama(width));
    return message_of<ConfigError>([&] { nn::keep_frozen(*model, dtype); });
  };
  CHECK(contains(error(32, FrozenDType::kNf4), "layers.0.self_attn.q_proj is "));
  CHECK(contains(error(32, FrozenDType::kInt8), "expected a row length that is a multiple of 64"));
  Module empty;
  CHECK(contains(message_of<ConfigError>([&] { nn::keep_frozen(empty, FrozenDType::kNf4); }),
                 "no linear layer"));
}

}  // namespace shale::test

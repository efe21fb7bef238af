// Compares GPT-2 with PyTorch: loss, per-parameter gradients and 20 steps of AdamW from the same
// weights and tokens. The numbers were computed in f64 by test/fixtures/make_gpt2.py, which
// explains every key at its top.
#include <bit>
#include <cmath>

#include "shale/comm/parallel/data/data_parallel.h"
#include "shale/comm/world.h"
#include "shale/models/language/family.h"
#include "shale/runtime/autograd/tape.h"
#include "shale/runtime/optim/clip.h"
#include "shale/runtime/optim/optimizer.h"
#include "shale/runtime/tensor/tensor_impl.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"
#include "shale/test/support/op_check.h"

namespace shale::test {
namespace {

Json load_fixture(const std::string& name) {
  return json_file(fixture_path("gpt2/" + name));
}

void fill_weights(const Parameter& parameter, const View& to, uint32_t seed, int64_t vocab) {
  const std::string name = parameter.full_name();
  const bool is_bias = name.ends_with(".bias");
  const bool is_gain = !is_bias && parameter.shape.ndim() == 1;
  const Formula formula(name, seed);
  const int64_t count = name == "wte.weight" ? vocab * parameter.shape[1] : parameter.numel();
  float* values = to.as<float>();
  for (int64_t e = 0; e < count; ++e) {
    values[e] = formula.value(e, is_gain ? 1 : 0, is_bias ? 0x1p-4f : 0x1p-3f);
  }
  std::fill(values + count, values + parameter.numel(), 0.0f);  // rows that pad the vocabulary
}

// A model with the fixture's weights on one rank. It is trained as train_lm trains.
class Run {
 public:
  explicit Run(const Json& fixture, int64_t loss_chunk_rows = 0)
      : sizes_(fixture["config"]),
        context_(small_context()),
        model_(models::make_language_model(config(), {.loss_chunk_rows = loss_chunk_rows})),
        parallel_(*model_, model_->blocks(), context_, *group_, {}),
        optimizer_(parallel_.shards(),
                   {.weight_decay = sizes_["adamw"]["weight_decay"].get<float>()}) {
    parallel_.load([&](const Parameter& parameter, int64_t, const View& to) {
      fill_weights(parameter, to, sizes_["seed"].get<uint32_t>(), sizes_["vocab"].integer());
    });
  }

  // Mean loss of the batch `name`; computes its gradient.
  double forward_backward(const std::string& name) {
    const int64_t B = sizes_["batch"].integer(), T = sizes_["length"].integer();
    const int64_t vocab = sizes_["vocab"].integer();
    const Formula formula(name, sizes_["seed"].get<uint32_t>());
    std::vector<int32_t> ids, targets;
    for (int64_t b = 0; b < B; ++b) {
      for (int64_t t = 0; t < T; ++t) {
        ids.push_back(int32_t(formula.word(b * (T + 1) + t) % vocab));
        targets.push_back(int32_t(formula.word(b * (T + 1) + t + 1) % vocab));
      }
    }
    context_.update_step([&](StepState& s) { s.grad_scale = 1 / float(B * T); });
    const Tensor loss = model_->loss(from_host<int32_t>(context_, ids, {B, T}),
                                     from_host<int32_t>(context_, targets, {B, T}));
    parallel_.begin_backward(true);
    backward(loss);
    parallel_.finish_gradients();
    return to_host<float>(loss).front() / double(B * T);
  }

  // Makes one optimizer step. Returns the gradient norm.
  double step() {
    const Json& adamw = sizes_["adamw"];
    optim::clip_grad_norm(context_, parallel_.shards(), adamw["clip"].real());
    optimizer_.step();
    optimizer_.zero_grad();
    return context_.read_step().grad_norm;
  }
  void prepare(int64_t number) {
    optimizer_.prepare(context_, number, sizes_["adamw"]["lr"].real());
  }

  models::LanguageModel& model() { return *model_; }
  comm::DataParallel& parallel() { return parallel_; }

 private:
  models::LanguageModelConfig config() const {
    models::LanguageModelConfig c;
    c.layers = sizes_["layers"].integer();
    c.width = sizes_["width"].integer();
    c.heads = sizes_["heads"].integer();
    c.vocab = sizes_["vocab"].integer();
    c.padded_vocab = models::pad_vocab(c.vocab);
    c.context = sizes_["context"].integer();
    return c;
  }

  Json sizes_;
  comm::World world_{0, nullptr};
  std::unique_ptr<comm::ProcessGroup> group_ = world_.group();
  Context context_;
  std::unique_ptr<models::LanguageModel> model_;
  comm::DataParallel parallel_;
  optim::AdamW optimizer_;
};

// Returns the allowed deviation from the f64 result: 8 times that of torch in f32, but at least
// 1e-6. Another correct f32 implementation deviates about as far as torch, or a few times as far if
// it adds in another order.
double allowed(const Json& deviation, const char* key) {
  return std::max(1e-6, 8 * deviation[key].get<double>());
}

void check_gradients(Run& run, const Json& fixture) {
  for (const auto& [name, want] : fixture["parameters"].items()) {
    CAPTURE(name);
    const Parameter* parameter = run.model().find_parameter(name);
    REQUIRE(parameter != nullptr);
    std::vector<float> grad = to_host<float>(parameter->value.grad());
    const auto real = want["shape"][0].get<size_t>() *
                      (parameter->shape.ndim() == 2 ? want["shape"][1].get<size_t>() : 1);
    for (size_t i = real; i < grad.size(); ++i) REQUIRE(grad[i] == 0);  // padded rows
    double squares = 0, total = 0;
    for (const float g : grad) squares += double(g) * g, total += g;
    const Json& deviation = fixture["f32_deviation"];
    const double largest = want["grad_abs_max"].real();
    CHECK(std::abs(std::sqrt(squares) / want["grad_norm"].get<double>() - 1) <=
          allowed(deviation, "grad_norm"));
    CHECK(std::abs(total - want["grad_sum"].get<double>()) <=
          allowed(deviation, "grad_sum") * want["grad_abs_sum"].get<double>());
    for (size_t i = 0; i < want["at"].size(); ++i) {
      const float got = grad[want["at"][i].get<size_t>()];
      CHECK(std::abs(got - want["grad"][i].get<double>()) <=
            allowed(deviation, "grad_element") * largest);
    }
  }
}

void check_training(Run& run, const Json& fixture) {
  const Json& train = fixture["train"];
  const Json& deviation = fixture["f32_deviation"];
  for (size_t step = 0; step < train["loss"].size(); ++step) {
    CAPTURE(step);
    run.prepare(int64_t(step));
    const double loss = run.forward_backward(cat("tokens/", step));
    CHECK(std::abs(loss / train["loss"][step].get<double>() - 1) <=
          allowed(deviation, "train_loss"));
    const double norm = run.step();
    CHECK(std::abs(norm / train["grad_norm"][step].get<double>() - 1) <=
          allowed(deviation, "train_norm"));
  }
  const double lr = fixture["config"]["adamw"]["lr"].real();
  for (const Parameter* parameter : run.model().parameters()) {
    const Json& want = fixture["parameters"][parameter->full_name()];
    CAPTURE(parameter->full_name());
    std::vector<float> values(static_cast<size_t>(parameter->numel()));
    run.parallel().read(*parameter, make_view(values.data(), parameter->shape));
    for (size_t i = 0; i < want["trained"].size(); ++i) {
      CHECK(std::abs(values[want["at"][i].get<size_t>()] - want["trained"][i].get<double>()) <=
            lr * allowed(deviation, "trained_in_lr"));
    }
  }
}

void check_fixture(const std::string& file) {
  const Json fixture = load_fixture(file);
  for (const auto& [name, want] : fixture["generator"].items()) {
    CAPTURE(name);
    const bool is_bias = name.ends_with(".bias"), is_gain = name.find("ln_") < name.size();
    const float first = Formula(name, fixture["config"]["seed"].get<uint32_t>())
                            .value(0, is_gain && !is_bias ? 1 : 0, is_bias ? 0x1p-4f : 0x1p-3f);
    const auto bits = std::stoul(want["first_bits"][0].get<std::string>(), nullptr, 16);
    // The formula gives the bits that are stored in the fixture.
    REQUIRE(std::bit_cast<uint32_t>(first) == bits);
  }
  Run run(fixture);
  const double loss = run.forward_backward("tokens");
  CHECK(std::abs(loss / fixture["loss"].get<double>() - 1) <=
        allowed(fixture["f32_deviation"], "loss"));
  check_gradients(run, fixture);
  for (const Parameter* parameter : run.model().parameters()) {
    leaf_state(parameter->value).has_value = false;  // discards the gradient, as zero_grad() does
  }
  check_training(run, fixture);
}

}  // namespace

TEST_CASE("a small GPT-2 of ragged sizes agrees with PyTorch, and so do 20 steps of AdamW") {
  check_fixture("gpt2_tiny.json");
}

TEST_CASE("GPT-2 124M agrees with PyTorch, and so do 20 steps of AdamW") {
  check_fixture("gpt2_124m.json");
}

TEST_CASE("a loss in chunks gives the gradients of a loss in one piece") {
  const Json fixture = load_fixture("gpt2_tiny.json");
  Run chunked(fixture, 13);
  chunked.forward_backward("tokens");
  check_gradients(chunked, fixture);
}

}  // namespace shale::test

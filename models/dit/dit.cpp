#include "shale/models/dit/dit.h"

#include <cmath>
#include <tuple>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/embedding.h"
#include "shale/runtime/ops/fused.h"
#include "shale/runtime/ops/norm.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/shape.h"

namespace shale::models {
namespace {

// Standard deviation of initial class embeddings and time MLP weights.
constexpr float kInitStd = 0.02f;
constexpr float kNormEps = 1e-6f, kDiffusersEps = 1e-5f;
constexpr int64_t kHiddenPerWidth = 4;
constexpr double kLongestPeriod = 10000;

// Returns a normal distribution with the deviation of the paper's initial values, which are uniform
// in +-sqrt(6 / (in + out)).
Init xavier(int64_t in, int64_t out) {
  return Init::normal(std::sqrt(2 / static_cast<float>(in + out)));
}

const DitConfig& checked(const DitConfig& config) {
  if (config.patch < 1 || config.pixels % config.patch != 0) {
    throw ConfigError(cat("diffusion transformer: patch is ", config.patch,
                          ", expected a divisor of the image size, ", config.pixels));
  }
  if (config.heads < 1 || config.width % config.heads != 0 || config.width % 4 != 0) {
    throw ConfigError(
        cat("diffusion transformer: width is ", config.width, " with ", config.heads,
            " heads, expected a width that is a multiple of 4 and of the number of heads"));
  }
  return config;
}

// Normalises x without learned gain, multiplies by (1 + scale) and adds shift. x: [N, T, C]; shift,
// scale: [N, 1, C].
Tensor modulated_norm(const Tensor& x, const Tensor& shift, const Tensor& scale, float eps) {
  const Tensor ones = full(x.context(), {x.size(-1)}, x.dtype(), 1);
  const Tensor normed = layer_norm(x, ones, {}, eps);
  return fused(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{add(add(mul(in[0], in[2]), in[0]), in[1])};
      },
      {normed, shift, scale})[0];
}

// Returns x + gate * branch.
Tensor gated_sum(const Tensor& x, const Tensor& gate, const Tensor& branch) {
  return fused(
      [](const std::vector<Tensor>& in) {
        return std::vector<Tensor>{add(in[0], mul(in[2], in[1]))};
      },
      {x, gate, branch})[0];
}

// Splits the output of a modulation layer, [N, count C], into `count` tensors [N, 1, C].
std::vector<Tensor> modulations(const Tensor& all, int64_t count) {
  const int64_t N = all.size(0), C = all.size(1) / count;
  return split(reshape(all, {N, 1, count * C}), std::vector<int64_t>(static_cast<size_t>(count), C),
               2);
}

// Concatenates tokens [N, T, C] and conditions [N, C] to one tensor [N, T + 1, C].
Tensor pack(const Tensor& tokens, const Tensor& condition) {
  return concat({tokens, reshape(condition, {condition.size(0), 1, condition.size(1)})}, 1);
}

std::pair<Tensor, Tensor> unpack(const Tensor& both) {
  const int64_t N = both.size(0), T = both.size(1) - 1, C = both.size(2);
  const std::vector<Tensor> parts = split(both, {T, 1}, 1);
  return {contiguous(parts[0]), reshape(contiguous(parts[1]), {N, C})};
}

}  // namespace

std::vector<float> time_features(std::span<const double> times, DitVariant variant) {
  constexpr int64_t kCount = kTimeFeatures / 2;
  const double last = variant == DitVariant::kPaper ? kCount : kCount - 1;
  std::vector<float> features;
  features.reserve(times.size() * kTimeFeatures);
  for (const double time : times) {
    const auto angle = [&](int64_t j) {
      return time * std::exp(-std::log(kLongestPeriod) * static_cast<double>(j) / last);
    };
    for (int64_t j = 0; j < kCount; ++j) features.push_back(static_cast<float>(std::cos(angle(j))));
    for (int64_t j = 0; j < kCount; ++j) features.push_back(static_cast<float>(std::sin(angle(j))));
  }
  return features;
}

std::vector<float> position_table(const DitConfig& config) {
  const int64_t edge = config.pixels / config.patch, width = config.width;
  std::vector<float> table;
  table.reserve(static_cast<size_t>(edge * edge * width));
  const int64_t count = width / 4;
  for (int64_t row = 0; row < edge; ++row) {
    for (int64_t col = 0; col < edge; ++col) {
      for (const int64_t position : {col, row}) {
        const auto angle = [&](int64_t j) {
          const double power = static_cast<double>(j) / static_cast<double>(count);
          return static_cast<double>(position) * std::pow(kLongestPeriod, -power);
        };
        for (int64_t j = 0; j < count; ++j) table.push_back(static_cast<float>(std::sin(angle(j))));
        for (int64_t j = 0; j < count; ++j) table.push_back(static_cast<float>(std::cos(angle(j))));
      }
    }
  }
  return table;
}

class Dit::Block : public Module {
 public:
  Block(Module* parent, std::string name, const DitConfig& config)
      : Module(parent, std::move(name)),
        attn_(this, "attn",
              {.width = config.width,
               .heads = config.heads,
               .init = xavier(config.width, 3 * config.width),
               .out_init = xavier(config.width, config.width),
               .causal = false,
               .qkv = "qkv",
               .out = "proj"}),
        mlp_(this, "mlp",
             {.width = config.width,
              .hidden = kHiddenPerWidth * config.width,
              .init = xavier(config.width, kHiddenPerWidth * config.width),
              .down_init = xavier(config.width, kHiddenPerWidth * config.width),
              .up = "fc1",
              .down = "fc2"}),
        modulation_(this, "adaLN_modulation.1", config.width, 6 * config.width, Init::zeros()),
        second_eps_(config.variant == DitVariant::kPaper ? kNormEps : kDiffusersEps) {
    modulation_.split_inputs();
  }

  // Applies a block. x: [N, T, C]; condition: [N, C].
  Tensor forward(const Tensor& x, const Tensor& condition) {
    return run(x, condition, [this](const Tensor& in, const Tensor& given) {
      const std::vector<Tensor> m = modulations(modulate(given), 6);
      const Tensor y = gated_sum(in, m[2], attn_.forward(modulated_norm(in, m[0], m[1], kNormEps)));
      return gated_sum(y, m[5], mlp_.forward(modulated_norm(y, m[3], m[4], second_eps_)));
    });
  }

 private:
  // Computes shifts, scales and gates from the conditions of all samples. Each rank multiplies some
  // input channels; the sums go to the ranks that have the samples.
  Tensor modulate(const Tensor& condition) {
    return distribution().across(silu(condition), {}, [&](const Tensor& rows, const Tensor&) {
      const int64_t count = modulation_.weight.shape[1], first = distribution().first_of(count);
      if (count == rows.size(1)) return modulation_.forward(rows);
      return modulation_.forward(contiguous(slice(rows, 1, first, first + count)));
    });
  }

  nn::SelfAttention attn_;
  nn::FeedForward mlp_;
  nn::Linear modulation_;
  float second_eps_;
};

class Dit::FinalLayer : public Module {
 public:
  FinalLayer(Module* parent, const DitConfig& config)
      : Module(parent, "final_layer"),
        linear_(this, "linear", config.width, config.patch * config.patch * config.results(),
                Init::zeros()),
        modulation_(this, "adaLN_modulation.1", config.width, 2 * config.width, Init::zeros()) {}

  Tensor forward(const Tensor& x, const Tensor& condition) {
    return run(x, condition, [this](const Tensor& rows, const Tensor& given) {
      const std::vector<Tensor> m = modulations(modulation_.forward(silu(given)), 2);
      return linear_.forward(modulated_norm(rows, m[0], m[1], kNormEps));
    });
  }

 private:
  nn::Linear linear_;
  nn::Linear modulation_;
};

Dit::Dit(const DitConfig& config)
    : config_(checked(config)),
      positions_(declare_buffer(
          {.name = "pos_embed", .shape = {1, config.tokens(), config.width}, .persistent = false})),
      patches_(this, "x_embedder.proj",
               {.in = config.channels,
                .out = config.width,
                .kernel = config.patch,
                .windows = {.stride = config.patch},
                .init = xavier(config.channels * config.patch * config.patch, config.width),
                .bias = nn::Bias::kYes}),
      time_in_(this, "t_embedder.mlp.0", kTimeFeatures, config.width, Init::normal(kInitStd)),
      time_out_(this, "t_embedder.mlp.2", config.width, config.width, Init::normal(kInitStd)),
      classes_(this, "y_embedder.embedding_table", config.classes + 1, config.width,
               Init::normal(kInitStd)) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(std::make_unique<Block>(this, cat("blocks.", layer), config));
  }
  final_ = std::make_unique<FinalLayer>(this, config);
  // The layers before and after the blocks are replicated: they process each rank's own samples.
  nn::replicate({&patches_, &time_in_, &time_out_, &classes_, final_.get()});
}

Dit::~Dit() = default;

std::vector<Module*> Dit::blocks() {
  std::vector<Module*> blocks;
  for (const auto& block : blocks_) blocks.push_back(block.get());
  return blocks;
}

double Dit::flops_per_image() const {
  const auto T = static_cast<double>(config_.tokens()), C = static_cast<double>(config_.width);
  const auto L = static_cast<double>(config_.layers);
  const auto of_patch = static_cast<double>(config_.patch * config_.patch);
  const double of_block = T * (4 + 2 * kHiddenPerWidth) * C * C + 2 * T * T * C + 6 * C * C;
  const double ends = T * of_patch * static_cast<double>(config_.channels + config_.results()) * C +
                      (kTimeFeatures + 3 * C) * C;
  return 6 * (L * of_block + ends);
}

// Returns the position table; fills it, with fixed values, when its memory is first used.
Tensor Dit::positions(Context& context) {
  if (filled_.lock() != positions_.value.storage()) {
    const std::vector<float> table = position_table(config_);
    Tensor values = from_host<float>(context, table, positions_.shape);
    copy_(positions_.value, values);
    filled_ = positions_.value.storage();
  }
  return positions_.value;
}

Tensor Dit::forward(const Tensor& x, const Tensor& times, const Tensor& labels) {
  check_defined("diffusion transformer", "x", x);
  const int64_t N = x.size(0);
  check_shape("diffusion transformer", "x", x,
              {N, config_.pixels, config_.pixels, config_.channels});
  check_shape("diffusion transformer", "times", times, {N, kTimeFeatures});
  check_shape("diffusion transformer", "labels", labels, {N});
  return run({x, times, labels}, [this](const Tensors& in) {
    auto [tokens, condition] = embed(in[0], in[1], in[2]);
    for (const auto& block : blocks_) tokens = block->forward(tokens, condition);
    return Tensors{unpatchify(final_->forward(tokens, condition))};
  })[0];
}

std::pair<Tensor, Tensor> Dit::embed(const Tensor& x, const Tensor& times, const Tensor& labels) {
  const DType dtype = patches_.weight.value.dtype();
  const int64_t C = config_.width;
  const auto own = [this](const Tensor& all) { return distribution().own_samples(all); };
  const Tensor images = own(x);
  const int64_t N = images.size(0);
  const Tensor patches = patches_.forward(cast(images, dtype));
  const Tensor tokens =
      add(reshape(patches, {N, config_.tokens(), C}), cast(positions(x.context()), dtype));
  const Tensor time = time_out_.forward(silu(time_in_.forward(cast(own(times), dtype))));
  const Tensor label = embedding(reshape(own(labels), {N, 1}), classes_.weight.value);
  return {tokens, add(time, reshape(label, {N, C}))};
}

std::vector<nn::Piece> Dit::pieces() {
  const auto C = static_cast<double>(config_.width), T = static_cast<double>(config_.tokens());
  const auto of_patch = static_cast<double>(config_.patch * config_.patch);
  std::vector<nn::Piece> pieces = {
      {.name = "embedding",
       .parameters = nn::parameters_of({&patches_, &time_in_, &time_out_, &classes_}),
       .cost = of_patch * static_cast<double>(config_.channels) * C + (kTimeFeatures + C) * C / T,
       .run = [this](const Tensor&, const Tensor&) {
         auto [tokens, condition] = embed(inputs_.x, inputs_.times, inputs_.labels);
         condition_ = condition;
         return tokens;
       }}};
  for (const auto& block : blocks_) {
    pieces.push_back({.name = block->full_name(),
                      .unit = block.get(),
                      .parameters = block->parameters(),
                      .cost = (4 + 2 * kHiddenPerWidth) * C * C + 2 * T * C + 6 * C * C / T,
                      .run = [this, &part = *block](const Tensor& x, const Tensor&) {
                        return part.forward(x, condition_);
                      }});
  }
  pieces.push_back({.name = "head",
                    .parameters = nn::parameters_of({final_.get()}),
                    .cost = of_patch * static_cast<double>(config_.results()) * C + 2 * C * C / T,
                    .run = [this](const Tensor& x, const Tensor&) {
                      const Tensor condition = std::exchange(condition_, {});
                      return inputs_.loss(unpatchify(final_->forward(x, condition)));
                    }});
  return pieces;
}

Tensor Dit::run_pieces(std::span<const nn::Piece> some, const Tensor& x, const DitInputs& inputs) {
  struct Reset {
    Dit& of;
    ~Reset() { of.inputs_ = {}, of.condition_ = {}; }
  };
  const Reset reset{*this};
  inputs_ = inputs;
  const bool begins = !x.defined();
  return run(begins ? inputs.x : x, [&](const Tensor& in) {
    Tensor y;
    if (!begins) std::tie(y, condition_) = unpack(in);
    for (const nn::Piece& piece : some) y = piece.run(y, {});
    return condition_.defined() ? pack(y, condition_) : y;  // the last piece clears condition_
  });
}

// Converts tokens [N, T, patch^2 results], one per patch in row-major order, to pictures.
Tensor Dit::unpatchify(const Tensor& tokens) const {
  const int64_t N = tokens.size(0), P = config_.patch, edge = config_.pixels / P;
  const Tensor patches = reshape(tokens, {N, edge, edge, P, P, config_.results()});
  return reshape(contiguous(transpose(patches, 2, 3)),
                 {N, config_.pixels, config_.pixels, config_.results()});
}

const std::vector<DitPreset>& dit_presets() {
  const auto sizes = [](int64_t layers, int64_t width, int64_t heads, int64_t patch) {
    return DitConfig{.patch = patch, .layers = layers, .width = width, .heads = heads};
  };
  static const std::vector<DitPreset> presets = {
      {"dit-nano", sizes(6, 128, 4, 4), 1e-3}, {"dit-s2", sizes(12, 384, 6, 2)},
      {"dit-b2", sizes(12, 768, 12, 2)},       {"dit-l2", sizes(24, 1024, 16, 2)},
      {"dit-xl2", sizes(28, 1152, 16, 2)},
  };
  return presets;
}

const DitPreset& find_dit_preset(const std::string& name) {
  std::string names;
  for (const DitPreset& preset : dit_presets()) {
    if (preset.name == name) return preset;
    names += cat(names.empty() ? "" : ", ", preset.name);
  }
  throw ConfigError(cat("--model is ", name, ", expected one of ", names));
}

}  // namespace shale::models

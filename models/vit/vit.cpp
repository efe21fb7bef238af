#include "shale/models/vit/vit.h"

#include <span>
#include <utility>

#include "shale/base/error.h"
#include "shale/runtime/nn/distribution.h"
#include "shale/runtime/ops/elementwise.h"
#include "shale/runtime/ops/pointwise.h"
#include "shale/runtime/ops/shape.h"

namespace shale::models {
namespace {

constexpr float kInitStd = 0.02f;
constexpr float kClassTokenStd = 1e-6f;
constexpr int64_t kHiddenPerWidth = 4;

const ImageModelConfig& checked(const ImageModelConfig& config) {
  if (config.patch < 1 || config.pixels % config.patch != 0) {
    throw ConfigError(cat("vision transformer: patch is ", config.patch,
                          ", expected a divisor of the image size, ", config.pixels));
  }
  if (config.heads < 1 || config.width % config.heads != 0) {
    throw ConfigError(cat("vision transformer: width is ", config.width, " with ", config.heads,
                          " heads, expected a number of heads that divides the width"));
  }
  return config;
}

int64_t tokens_of(const ImageModelConfig& config) {
  const int64_t edge = config.pixels / config.patch;
  return 1 + edge * edge;
}

}  // namespace

class VisionTransformer::Block : public Module {
 public:
  Block(Module* parent, std::string name, const ImageModelConfig& config)
      : Module(parent, std::move(name)),
        norm1_(this, "norm1", config.width, config.norm_eps),
        attn_(this, "attn",
              {.width = config.width,
               .heads = config.heads,
               .init = Init::normal(kInitStd),
               .out_init = Init::normal(kInitStd),
               .causal = false,
               .qkv = "qkv",
               .out = "proj"}),
        norm2_(this, "norm2", config.width, config.norm_eps),
        mlp_(this, "mlp",
             {.width = config.width,
              .hidden = kHiddenPerWidth * config.width,
              .init = Init::normal(kInitStd),
              .down_init = Init::normal(kInitStd),
              .gelu = Gelu::kErf,
              .up = "fc1",
              .down = "fc2"}) {}

  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      const auto [normed, stream] = norm1_.forward_stream(in);
      const auto [again, y] = norm2_.forward_stream(attn_.forward(normed, stream));
      return mlp_.forward(again, y);
    });
  }

 private:
  nn::LayerNorm norm1_;
  nn::SelfAttention attn_;
  nn::LayerNorm norm2_;
  nn::FeedForward mlp_;
};

VisionTransformer::VisionTransformer(const ImageModelConfig& config)
    : ImageModel(checked(config)),
      class_token_(declare("cls_token", {1, 1, config.width}, Init::normal(kClassTokenStd),
                           /*decay=*/false)),
      positions_(declare("pos_embed", {1, tokens_of(config), config.width}, Init::normal(kInitStd),
                         /*decay=*/false)),
      patches_(this, "patch_embed.proj",
               {.in = 3,
                .out = config.width,
                .kernel = config.patch,
                .windows = {.stride = config.patch},
                .init = Init::normal(kInitStd),
                .bias = nn::Bias::kYes}),
      blocks_(),
      norm_(this, "norm", config.width, config.norm_eps),
      head_(this, "head", config.width, config.classes, Init::normal(kInitStd)) {
  for (int64_t layer = 0; layer < config.layers; ++layer) {
    blocks_.push_back(std::make_unique<Block>(this, cat("blocks.", layer), config));
  }
  // The layers before and after the blocks are replicated: they process each rank's own samples.
  nn::replicate({&patches_, &head_});
  class_token_.split = positions_.split = {Share::kReplicate};
}

VisionTransformer::~VisionTransformer() = default;

std::vector<Module*> VisionTransformer::blocks() {
  std::vector<Module*> blocks;
  for (const auto& block : blocks_) blocks.push_back(block.get());
  return blocks;
}

int64_t VisionTransformer::tokens() const {
  return tokens_of(config());
}

std::string VisionTransformer::torchvision_name(std::string_view name) const {
  // Names, or prefixes of names, in timm and in torchvision.
  constexpr std::pair<std::string_view, std::string_view> kWhole[] = {
      {"cls_token", "class_token"},
      {"pos_embed", "encoder.pos_embedding"},
      {"patch_embed.proj.", "conv_proj."},
      {"norm.", "encoder.ln."},
      {"head.", "heads.head."}};
  constexpr std::pair<std::string_view, std::string_view> kOfBlock[] = {
      {"norm1.", "ln_1."},
      {"attn.qkv.weight", "self_attention.in_proj_weight"},
      {"attn.qkv.bias", "self_attention.in_proj_bias"},
      {"attn.proj.", "self_attention.out_proj."},
      {"norm2.", "ln_2."},
      {"mlp.fc1.", "mlp.0."},
      {"mlp.fc2.", "mlp.3."}};
  constexpr std::string_view kBlocks = "blocks.";
  std::string begin;
  std::span<const std::pair<std::string_view, std::string_view>> table = kWhole;
  if (name.starts_with(kBlocks)) {
    name.remove_prefix(kBlocks.size());
    const size_t dot = name.find('.');
    begin = cat("encoder.layers.encoder_layer_", name.substr(0, dot), ".");
    name.remove_prefix(dot + 1);
    table = kOfBlock;
  }
  for (const auto& [timm, torchvision] : table) {
    if (name.starts_with(timm)) return cat(begin, torchvision, name.substr(timm.size()));
  }
  throw InternalError(cat("vit: torchvision has no name for ", name));
}

double VisionTransformer::flops_per_image() const {
  const auto T = static_cast<double>(tokens()), C = static_cast<double>(config().width);
  const auto P = static_cast<double>(config().patch), L = static_cast<double>(config().layers);
  const double of_block = T * (4 + 2 * kHiddenPerWidth) * C * C + 2 * T * T * C;
  const double multiply_adds =
      (T - 1) * 3 * P * P * C + L * of_block + C * static_cast<double>(config().classes);
  return 6 * multiply_adds;
}

// Returns the tokens of this rank's samples. If tensor-parallel ranks share the layers, `images`
// has the samples of all these ranks, and this rank embeds only its own.
Tensor VisionTransformer::embed(const Tensor& images) {
  const Tensor own = distribution().own_samples(images);
  const int64_t N = own.size(0), C = config().width;
  const Tensor patches = reshape(patches_.forward(own), {N, tokens() - 1, C});
  const Tensor none = zeros(own.context(), {N, 1, C}, patches.dtype());
  return add(concat({add(none, class_token_.value), patches}, 1), positions_.value);
}

Tensor VisionTransformer::scores(const Tensor& tokens) {
  const Tensor first = contiguous(slice(norm_.forward(tokens), 1, 0, 1));
  return head_.forward(reshape(first, {tokens.size(0), config().width}));
}

Tensor VisionTransformer::classify(const Tensor& images) {
  Tensor x = embed(images);
  for (const auto& block : blocks_) x = block->forward(x);
  return scores(x);
}

std::vector<nn::Piece> VisionTransformer::pieces() {
  const auto C = static_cast<double>(config().width), T = static_cast<double>(tokens());
  const auto P = static_cast<double>(config().patch);
  std::vector<Parameter*> first = nn::parameters_of({&patches_});
  first.insert(first.end(), {&class_token_, &positions_});
  std::vector<nn::Piece> pieces = {{.name = "embedding",
                                    .parameters = std::move(first),
                                    .cost = 3 * P * P * C,
                                    .run = [this](const Tensor&, const Tensor&) {
                                      return embed(cast(batch().images, compute_dtype()));
                                    }}};
  for (const auto& block : blocks_) {
    pieces.push_back(
        {.name = block->full_name(),
         .unit = block.get(),
         .parameters = block->parameters(),
         .cost = (4 + 2 * kHiddenPerWidth) * C * C + 2 * T * C,
         .run = [&part = *block](const Tensor& x, const Tensor&) { return part.forward(x); }});
  }
  pieces.push_back(
      {.name = "head",
       .parameters = nn::parameters_of({&norm_, &head_}),
       .cost = C * static_cast<double>(config().classes) / T,
       .run = [this](const Tensor& x, const Tensor&) { return loss_of(scores(x), batch()); }});
  return pieces;
}

}  // namespace shale::models

#include "shale/models/resnet/resnet.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "shale/base/error.h"

namespace shale::models {
namespace {

constexpr int64_t kStemWidth = 64;

nn::Conv2d::Config conv_config(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  // Deviation that keeps the variance of gradients through relu (arXiv:1502.01852, equation 14).
  const auto fan_out = static_cast<float>(kernel * kernel * out);
  return {.in = in,
          .out = out,
          .kernel = kernel,
          .windows = {.stride = stride, .padding = kernel / 2},
          .init = Init::normal(std::sqrt(2 / fan_out))};
}

nn::Conv2d::Config stem_config(const ImageModelConfig& config) {
  return config.small_stem ? conv_config(3, kStemWidth, 3) : conv_config(3, kStemWidth, 7, 2);
}

// Returns normal initial values with torchvision's deviation. torchvision's values are uniform in
// +-1 / sqrt(in).
Init linear_init(int64_t in) {
  return Init::normal(1 / std::sqrt(3.0f * static_cast<float>(in)));
}

// Returns the output channels of the last stage.
int64_t last_width(const ImageModelConfig& config) {
  return 8 * kStemWidth * (config.bottleneck ? 4 : 1);
}

// Returns the multiply-adds of a convolution on an image with edge length `edge`, and sets `edge`
// to the edge length of the result.
double count(const nn::Conv2d::Config& conv, int64_t& edge) {
  edge = conv.windows.count(edge, conv.kernel);
  return static_cast<double>(conv.kernel * conv.kernel * conv.in * conv.out) *
         static_cast<double>(edge * edge);
}

// Convolutions of a block, in order, and the convolution of its shortcut.
struct BlockConvs {
  BlockConvs(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      main = {conv_config(in, width, 1), conv_config(width, width, 3, stride),
              conv_config(width, out, 1)};
    } else {
      main = {conv_config(in, width, 3, stride), conv_config(width, width, 3)};
    }
    if (stride != 1 || in != out) beside = conv_config(in, out, 1, stride);
  }
  std::vector<nn::Conv2d::Config> main;
  std::optional<nn::Conv2d::Config> beside;
};

// Shortcut of a block: modules "downsample.0" and "downsample.1".
struct Downsample : Module {
  Downsample(Module* parent, const nn::Conv2d::Config& config)
      : Module(parent, "downsample"),
        conv(this, "0", config),
        norm(this, "1", {.width = config.out}) {}
  bool runs() const override { return false; }
  nn::Conv2d conv;
  nn::BatchNorm norm;
};

}  // namespace

// Computes relu(bn(conv(...)) + x); addition and relu are fused into the last batch norm.
class ResNet::Block : public Module {
 public:
  Block(Module* parent, std::string name, const BlockConvs& convs)
      : Module(parent, std::move(name)) {
    for (size_t i = 0; i < convs.main.size(); ++i) {
      convs_.push_back(std::make_unique<nn::Conv2d>(this, cat("conv", i + 1), convs.main[i]));
      norms_.push_back(std::make_unique<nn::BatchNorm>(
          this, cat("bn", i + 1), nn::BatchNorm::Config{.width = convs.main[i].out}));
    }
    if (convs.beside) downsample_.emplace(this, *convs.beside);
  }

  Tensor forward(const Tensor& x) {
    return run(x, [this](const Tensor& in) {
      const Tensor beside =
          downsample_ ? downsample_->norm.forward(downsample_->conv.forward(in)) : in;
      Tensor y = in;
      for (size_t i = 0; i < convs_.size(); ++i) {
        const bool last = i + 1 == convs_.size();
        y = norms_[i]->forward(convs_[i]->forward(y), nn::Relu::kYes, last ? beside : Tensor());
      }
      return y;
    });
  }

 private:
  std::vector<std::unique_ptr<nn::Conv2d>> convs_;
  std::vector<std::unique_ptr<nn::BatchNorm>> norms_;
  std::optional<Downsample> downsample_;
};

ResNet::ResNet(const ImageModelConfig& config)
    : ImageModel(config),
      conv1_(this, "conv1", stem_config(config)),
      bn1_(this, "bn1", {.width = kStemWidth}),
      blocks_(),
      fc_(this, "fc", last_width(config), config.classes, linear_init(last_width(config))) {
  int64_t edge = config.pixels, in = kStemWidth;
  multiply_adds_ = count(stem_config(config), edge);
  if (!config.small_stem) edge = Windows{.stride = 2, .padding = 1}.count(edge, 3);
  for (size_t stage = 0; stage < config.depths.size(); ++stage) {
    const int64_t width = kStemWidth << stage;
    for (int64_t i = 0; i < config.depths[stage]; ++i) {
      const BlockConvs convs(in, width, stage > 0 && i == 0 ? 2 : 1, config.bottleneck);
      blocks_.push_back(std::make_unique<Block>(this, cat("layer", stage + 1, ".", i), convs));
      int64_t beside_edge = edge;
      if (convs.beside) multiply_adds_ += count(*convs.beside, beside_edge);
      for (const nn::Conv2d::Config& conv : convs.main) multiply_adds_ += count(conv, edge);
      in = convs.main.back().out;
    }
  }
  if (edge < 1) {
    throw ConfigError(
        cat("resnet: images of ", config.pixels,
            " pixels are too small: the last stage would have no pixels; use larger --pixels"));
  }
  multiply_adds_ += static_cast<double>(in * config.classes);
}

ResNet::~ResNet() = default;

std::vector<Module*> ResNet::blocks() {
  std::vector<Module*> blocks;
  for (const auto& block : blocks_) blocks.push_back(block.get());
  return blocks;
}

Tensor ResNet::classify(const Tensor& images) {
  Tensor x = bn1_.forward(conv1_.forward(images), nn::Relu::kYes);
  if (!config().small_stem) x = max_pool2d(x, 3, {.stride = 2, .padding = 1});
  for (const auto& block : blocks_) x = block->forward(x);
  return fc_.forward(global_average_pool(x));
}

}  // namespace shale::models

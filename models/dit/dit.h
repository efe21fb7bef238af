#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "shale/runtime/nn/conv.h"
#include "shale/runtime/nn/layers.h"
#include "shale/runtime/nn/piece.h"

namespace shale::models {

// Published programs with this architecture. They use different constants.
enum class DitVariant {
  kPaper,  // program of the paper's authors
  // The library diffusers: other time frequencies, and epsilon 1e-5 in the norm before
  // feed-forward.
  kDiffusers,
};

// Architecture of a diffusion transformer.
struct DitConfig {
  int64_t pixels = 32;   // edge length of the pictures or latents to denoise
  int64_t channels = 4;  // channels per pixel
  int64_t patch = 2;     // edge length of a token's patch, in pixels
  int64_t layers = 0, width = 0, heads = 0;
  int64_t classes = 1000;
  bool learned_variance = false;  // doubles the output channels
  DitVariant variant = DitVariant::kPaper;

  int64_t tokens() const { return (pixels / patch) * (pixels / patch); }
  // Output channels per pixel.
  int64_t results() const { return channels * (learned_variance ? 2 : 1); }
  int32_t no_class() const { return static_cast<int32_t>(classes); }
};

inline constexpr int64_t kTimeFeatures = 256;
// Returns sinusoids of times, [times.size(), kTimeFeatures]: first cos(t f_j) for all j, then sin(t
// f_j), with j < 128. f_j = 10000^(-j/128), or 10000^(-j/127) in the diffusers variant. Computed in
// f64.
std::vector<float> time_features(std::span<const double> times, DitVariant variant);

// Returns sinusoids of token positions, [tokens, width]. The first half of a row encodes the column
// p of the token's patch, the second half its row p. Each half has sin(p f_j) for all j, then cos(p
// f_j), with f_j = 10000^(-j / n) and j < n = width / 4.
std::vector<float> position_table(const DitConfig& config);

// Inputs for running pieces of the model: the arguments of Dit::forward(), and a function that
// returns the loss of the model's output. Only the first piece needs x.
struct DitInputs {
  Tensor x, times, labels;
  std::function<Tensor(const Tensor& said)> loss = {};
};

// Diffusion transformer with adaLN-Zero (arXiv:2212.09748). Its tokens are patches of a noisy
// picture, with fixed sinusoidal positions. In each block, time and class determine shift and scale
// of the norms, and the scale of what is added to the residual stream. The latter and the output
// layer are initially 0, and so is the output. Names and layouts of parameters are those of the
// paper's program.
class Dit : public Module {
 public:
  // Throws ConfigError for inconsistent sizes.
  explicit Dit(const DitConfig& config);
  ~Dit() override;
  const DitConfig& config() const { return config_; }

  // Returns the transformer blocks, in order. Data parallelism shards and reduces block by block.
  std::vector<Module*> blocks();
  // Returns the FLOPs of forward and backward per picture: three times those of the GEMMs in
  // forward.
  double flops_per_image() const;

  // x: [N, pixels, pixels, channels], any float dtype; times: [N, kTimeFeatures] f32, made by
  // time_features(); labels: [N] i32, 0 to no_class(), which means no class. Returns [N, pixels,
  // pixels, results()] in the compute dtype; a sharded model returns only this rank's samples
  // (nn::Distribution). Throws ShapeError.
  Tensor forward(const Tensor& x, const Tensor& times, const Tensor& labels);

  // Returns the model as a list of pieces: embedding of tokens and conditions, blocks, and the
  // loss. They pass on a tensor [N, tokens() + 1, width] in the compute dtype: each sample's
  // tokens, followed by its condition.
  std::vector<nn::Piece> pieces();
  // Runs some consecutive pieces under the model's hooks. x: output of the previous piece;
  // undefined for the first piece.
  Tensor run_pieces(std::span<const nn::Piece> some, const Tensor& x, const DitInputs& inputs);

 private:
  class Block;
  class FinalLayer;

  Tensor positions(Context& context);
  // Returns the tokens of this rank's samples, and their conditions.
  std::pair<Tensor, Tensor> embed(const Tensor& x, const Tensor& times, const Tensor& labels);
  Tensor unpatchify(const Tensor& tokens) const;

  DitConfig config_;
  Buffer& positions_;              // sinusoids of positions, [1, tokens, width]
  std::weak_ptr<Storage> filled_;  // memory of positions_ in which the table has been written
  nn::Conv2d patches_;
  nn::Linear time_in_, time_out_;
  nn::Embedding classes_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<FinalLayer> final_;
  // Inputs of the pieces that are running.
  DitInputs inputs_;
  Tensor condition_;
};

// Named architecture.
struct DitPreset {
  std::string name;
  DitConfig model;   // without pixels, channels and classes, which depend on the data
  double lr = 1e-4;  // learning rate for AdamW
};
const std::vector<DitPreset>& dit_presets();
// Returns a preset. Throws ConfigError, with the known names, for another name.
const DitPreset& find_dit_preset(const std::string& name);

}  // namespace shale::models

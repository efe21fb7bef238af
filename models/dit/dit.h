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

// Published programs compute the same architecture with other numbers.
enum class DitVariant {
  kPaper,      // of the paper's authors
  kDiffusers,  // other frequencies of times, and an epsilon of 1e-5 before feed-forward blocks
};

// The architecture of a diffusion transformer.
struct DitConfig {
  int64_t pixels = 32;   // of the edge of what is denoised: of pictures, or of their latents
  int64_t channels = 4;  // of a pixel
  int64_t patch = 2;     // of the edge of what becomes a token, in pixels
  int64_t layers = 0, width = 0, heads = 0;
  int64_t classes = 1000;
  bool learned_variance = false;  // there are twice as many channels of results
  DitVariant variant = DitVariant::kPaper;

  int64_t tokens() const { return (pixels / patch) * (pixels / patch); }
  int64_t results() const { return channels * (learned_variance ? 2 : 1); }  // of a pixel
  int32_t no_class() const { return static_cast<int32_t>(classes); }
};

inline constexpr int64_t kTimeFeatures = 256;
// Sinusoids of times, [times.size(), kTimeFeatures]: cosines, then sines of t f_j with f_j =
// 10000^(-j/128), of the variant of diffusers 10000^(-j/127), j < 128. Computed in f64.
std::vector<float> time_features(std::span<const double> times, DitVariant variant);

// Sinusoids of the places of tokens, [tokens, width]: of the column, then of the row, sines then
// cosines of position f_j with f_j = 10000^(-j / (width / 4)).
std::vector<float> position_table(const DitConfig& config);

// What a run of pieces is given: as Dit::forward(), and the loss of what that returns. The first
// piece alone needs x.
struct DitInputs {
  Tensor x, times, labels;
  std::function<Tensor(const Tensor& said)> loss = {};
};

// The diffusion transformer (arXiv:2212.09748): patches of a noisy picture as tokens, fixed
// sinusoids as their positions, and blocks whose norms are scaled and shifted, and whose results
// are scaled, by what is learnt of time and class (adaLN-Zero): these scales begin as 0, so that
// the first result is 0. Names and layouts of parameters are those of the paper's program.
class Dit : public Module {
 public:
  // Throws ConfigError for sizes that do not go together.
  explicit Dit(const DitConfig& config);
  ~Dit() override;
  const DitConfig& config() const { return config_; }

  // The repeated parts, in order: the units of data parallelism.
  std::vector<Module*> blocks();
  // FLOPs of forward and backward per picture: three times those of the products of forward.
  double flops_per_image() const;

  // x: [N, pixels, pixels, channels], of any float dtype; times: [N, kTimeFeatures] f32
  // (time_features()); labels: [N] i32, up to no_class(), which stands for none. Returns
  // [N, pixels, pixels, results()] in the compute dtype: of a model that is cut, those of this
  // rank's samples (nn::Distribution). Throws ShapeError.
  Tensor forward(const Tensor& x, const Tensor& times, const Tensor& labels);

  // The model as a list of pieces: what makes tokens and conditions, blocks, and what makes the
  // loss. Between two stages goes [N, tokens() + 1, width] in the compute dtype, the condition of a
  // sample behind its tokens.
  std::vector<nn::Piece> pieces();
  // Runs some of them, which follow each other, under the model's hooks. x: what the one before
  // them has made; undefined for the first.
  Tensor run_pieces(std::span<const nn::Piece> some, const Tensor& x, const DitInputs& inputs);

 private:
  class Block;
  class FinalLayer;

  Tensor positions(Context& context);
  // Tokens of this rank's samples, and their conditions.
  std::pair<Tensor, Tensor> embed(const Tensor& x, const Tensor& times, const Tensor& labels);
  Tensor unpatchify(const Tensor& tokens) const;

  DitConfig config_;
  Buffer& positions_;              // [1, tokens, width], sinusoids
  std::weak_ptr<Storage> filled_;  // the memory of positions_ that has its values
  nn::Conv2d patches_;
  nn::Linear time_in_, time_out_;
  nn::Embedding classes_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<FinalLayer> final_;
  // Of the pieces that run.
  DitInputs inputs_;
  Tensor condition_;
};

// An architecture by name.
struct DitPreset {
  std::string name;
  DitConfig model;   // but for pixels, channels and classes, which the data says
  double lr = 1e-4;  // of AdamW
};
const std::vector<DitPreset>& dit_presets();
// Throws ConfigError with the names that there are.
const DitPreset& find_dit_preset(const std::string& name);

}  // namespace shale::models

#include "shale/runtime/data/images/shapes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "shale/base/error.h"
#include "shale/base/rng.h"

namespace shale {
namespace {

constexpr std::array kFigures = {"circle", "square", "triangle", "cross", "ring", "star"};
struct Colour {
  const char* name;
  std::array<float, 3> rgb;
};
constexpr std::array<Colour, 4> kColours = {{{"red", {0.9f, 0.15f, 0.15f}},
                                             {"green", {0.15f, 0.75f, 0.2f}},
                                             {"blue", {0.2f, 0.3f, 0.95f}},
                                             {"yellow", {0.95f, 0.85f, 0.15f}}}};
constexpr int64_t kClasses = std::ssize(kFigures) * std::ssize(kColours);

// Sequence of random numbers in [0, 1) for one image.
class Draws {
 public:
  Draws(uint64_t seed, int64_t index)
      : key_(rng_key(seed ^ hash_name("shapes"), RngDomain::kSampling)),
        index_(static_cast<uint64_t>(index)) {}
  float next() {
    if (left_ == 0) {
      block_ = philox(
          {static_cast<uint32_t>(index_), static_cast<uint32_t>(index_ >> 32), number_++, 0}, key_);
      left_ = 4;
    }
    return uniform_f32(block_[static_cast<size_t>(4 - left_--)]);
  }
  float between(float low, float high) { return low + (high - low) * next(); }

 private:
  PhiloxKey key_;
  uint64_t index_;
  uint32_t number_ = 0;
  PhiloxCounter block_{};
  int left_ = 0;
};

// Returns true if a point is inside a figure of radius 1 around the origin.
bool is_inside(size_t figure, float x, float y) {
  const float r2 = x * x + y * y;
  switch (figure) {
    case 0: return r2 < 0.8f;
    case 1: return std::max(std::abs(x), std::abs(y)) < 0.72f;
    case 2: return y > -0.5f && y < 1 - 1.7320508f * std::abs(x);
    case 3:
      return std::min(std::abs(x), std::abs(y)) < 0.26f &&
             std::max(std::abs(x), std::abs(y)) < 0.95f;
    case 4: return r2 < 0.9f && r2 > 0.3f;
    default: {
      // A star with five points (radius 1); between two points its edge reaches radius 0.4.
      constexpr float kTurn = 2 * std::numbers::pi_v<float> / 5;
      const float radius = std::sqrt(r2);
      float angle = std::fmod(std::atan2(x, y) + 10 * kTurn, kTurn);
      angle = std::min(angle, kTurn - angle);
      const float px = radius * std::sin(angle), py = radius * std::cos(angle);
      constexpr float kInner = 0.4f;
      const float ix = kInner * std::sin(kTurn / 2), iy = kInner * std::cos(kTurn / 2);
      return (1 - py) * ix - px * (1 - iy) > 0;
    }
  }
}

class Shapes final : public ImageDataset {
 public:
  explicit Shapes(const ShapesOptions& options) : options_(options) {}

  int64_t size() const override { return options_.images; }
  int32_t label(int64_t index) const override {
    check(index);
    return static_cast<int32_t>(Draws(options_.seed, index).next() * static_cast<float>(kClasses));
  }
  void read(int64_t index, Image& to) const override;

 private:
  void check(int64_t index) const {
    if (index >= 0 && index < options_.images) return;
    throw InternalError(cat("shapes: image ", index, ", expected [0, ", options_.images, ")"));
  }

  ShapesOptions options_;
};

void Shapes::read(int64_t index, Image& to) const {
  check(index);
  const int64_t n = options_.pixels;
  to.resize(n, n, 3);
  Draws draw(options_.seed, index);
  const auto label = static_cast<size_t>(draw.next() * static_cast<float>(kClasses));
  const size_t figure = label / kColours.size();
  const Colour& colour = kColours[label % kColours.size()];
  const float size = draw.between(0.2f, 0.42f) * static_cast<float>(n);
  const float room = static_cast<float>(n) / 2 - size;
  const float cx = static_cast<float>(n) / 2 + draw.between(-room, room);
  const float cy = static_cast<float>(n) / 2 + draw.between(-room, room);
  const float turn = draw.between(0, 2 * std::numbers::pi_v<float>);
  const float cosine = std::cos(turn) / size, sine = std::sin(turn) / size;
  std::array<float, 3> near{}, far{}, fill{};
  for (size_t c = 0; c < 3; ++c) {
    near[c] = draw.between(0.25f, 0.6f);
    far[c] = draw.between(0.25f, 0.6f);
    fill[c] = std::clamp(colour.rgb[c] + draw.between(-0.1f, 0.1f), 0.f, 1.f);
  }
  for (int64_t row = 0; row < n; ++row) {
    const float down = static_cast<float>(row) / static_cast<float>(n);
    for (int64_t col = 0; col < n; ++col) {
      float covered = 0;  // fraction of the pixel that the figure covers, from four sample points
      for (const auto& [dx, dy] :
           {std::pair(0.25f, 0.25f), {0.75f, 0.25f}, {0.25f, 0.75f}, {0.75f, 0.75f}}) {
        const float x = static_cast<float>(col) + dx - cx, y = static_cast<float>(row) + dy - cy;
        covered += is_inside(figure, x * cosine - y * sine, x * sine + y * cosine) ? 0.25f : 0.f;
      }
      const float noise = draw.between(-0.08f, 0.08f);
      for (size_t c = 0; c < 3; ++c) {
        const float back = near[c] + (far[c] - near[c]) * down;
        const float value = back + (fill[c] - back) * covered + noise;
        to.at(row, col)[c] = static_cast<uint8_t>(std::lround(255 * std::clamp(value, 0.f, 1.f)));
      }
    }
  }
}

}  // namespace

std::vector<std::string> shape_classes() {
  std::vector<std::string> names;
  for (const char* figure : kFigures) {
    for (const Colour& colour : kColours) names.push_back(cat(colour.name, " ", figure));
  }
  return names;
}

std::shared_ptr<const ImageDataset> make_shapes(const ShapesOptions& options) {
  constexpr int64_t kSmallest = 8, kLargest = 4096;
  if (options.images < 1 || options.pixels < kSmallest || options.pixels > kLargest) {
    throw ConfigError(cat("shapes: ", options.images, " images of ", options.pixels,
                          " pixels, expected at least 1 image of ", kSmallest, " to ", kLargest,
                          " pixels"));
  }
  return std::make_shared<const Shapes>(options);
}

}  // namespace shale

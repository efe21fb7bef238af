#include "shale/runtime/data/images/augment.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"

namespace shale::test {
namespace {

Image picture(int64_t rows, int64_t cols, int64_t channels = 3) {
  Image image;
  image.resize(rows, cols, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) image.pixels[i] = uint8_t(i * 37 % 251);
  return image;
}

// Options without augmentation and normalization; values are from 0 to 1.
Augmentation plain(int64_t pixels) {
  return {.pixels = pixels, .mean = {0, 0, 0}, .deviation = {1, 1, 1}};
}

std::vector<float> pixels_of(const Image& image, const Crop& crop, const Augmentation& how) {
  std::vector<float> values(size_t(how.pixels * how.pixels * 3), -7.f);
  write_pixels(image, crop, how, values);
  return values;
}

}  // namespace

TEST_CASE("crops are resized as PIL resizes them") {
  // Compares with PIL's bilinear filter on f32 pictures with a single channel.
  const Json fixture = json_file(fixture_path("images/resize.json"));
  Image image;
  image.resize(9, 13, 3);
  for (size_t i = 0; i < image.pixels.size(); ++i)
    image.pixels[i] = fixture["pixels"][i].get<uint8_t>();
  for (const char* name : {"smaller", "larger"}) {
    CAPTURE(name);
    const Json& box = fixture[name]["box"];  // left, upper, right and lower edge
    const Crop crop{.row = box[1].integer(),
                    .col = box[0].integer(),
                    .rows = box[3].integer() - box[1].integer(),
                    .cols = box[2].integer() - box[0].integer()};
    const auto got = pixels_of(image, crop, plain(fixture[name]["size"].integer()));
    double worst = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      worst = std::max(worst, std::abs(255.0 * got[i] - fixture[name]["values"][i].get<double>()));
    }
    // The fixture stores four decimals; further errors are f32 roundings.
    CHECK(worst < 2e-4);
  }
}

TEST_CASE("a picture of the right size stays as it is, and can be mirrored") {
  const Image image = picture(4, 4);
  const auto same = pixels_of(image, {.rows = 4, .cols = 4}, plain(4));
  const auto mirrored = pixels_of(image, {.rows = 4, .cols = 4, .mirrored = true}, plain(4));
  for (int64_t row = 0; row < 4; ++row)
    for (int64_t col = 0; col < 4; ++col)
      for (int64_t c = 0; c < 3; ++c) {
        const float want = float(image.at(row, col)[c]) / 255;
        CHECK(same[size_t((row * 4 + col) * 3 + c)] == Approx(want).epsilon(1e-6));
        CHECK(mirrored[size_t((row * 4 + 3 - col) * 3 + c)] == Approx(want).epsilon(1e-6));
      }
}

TEST_CASE("gray counts as three equal channels, which are normalised each by itself") {
  const Image image = picture(3, 3, 1);
  const Augmentation how{.pixels = 3, .mean = {0.5f, 0.25f, 0}, .deviation = {0.5f, 1, 2}};
  const auto got = pixels_of(image, {.rows = 3, .cols = 3}, how);
  for (size_t i = 0; i < 9; ++i) {
    const float value = float(image.pixels[i]) / 255;
    CHECK(got[3 * i] == Approx((value - 0.5f) / 0.5f).margin(1e-6));
    CHECK(got[3 * i + 1] == Approx(value - 0.25f).margin(1e-6));
    CHECK(got[3 * i + 2] == Approx(value / 2).margin(1e-6));
  }
}

TEST_CASE("training crops are a function of seed and position, inside of the picture") {
  const Augmentation how{.crop_area = 0.2, .mirror = 0.5};
  std::set<std::pair<int64_t, int64_t>> sizes;
  int mirrored = 0;
  for (int64_t position = 0; position < 400; ++position) {
    const Crop crop = training_crop(how, 60, 80, 5, position);
    CHECK(crop == training_crop(how, 60, 80, 5, position));
    REQUIRE(crop.row >= 0);
    REQUIRE(crop.col >= 0);
    REQUIRE(crop.row + crop.rows <= 60);
    REQUIRE(crop.col + crop.cols <= 80);
    const double share = double(crop.rows * crop.cols) / (60 * 80);
    const double ratio = double(crop.cols) / double(crop.rows);
    // Crops are rounded to whole pixels, so their area may be slightly below 0.2.
    CHECK(share >= 0.2 * 0.93);
    CHECK(ratio >= 0.75 * 0.94);
    CHECK(ratio <= 1.34 * 1.06);
    sizes.emplace(crop.rows, crop.cols);
    mirrored += crop.mirrored ? 1 : 0;
  }
  CHECK(sizes.size() > 200);
  CHECK(mirrored > 150);  // 200 of 400 expected; the margin is five standard deviations of 10
  CHECK(mirrored < 250);
  CHECK_FALSE(training_crop(how, 60, 80, 5, 3) == training_crop(how, 60, 80, 6, 3));
}

TEST_CASE("a picture too long for any crop gives its middle") {
  const Crop crop = training_crop({.crop_area = 0.9, .mirror = 0}, 10, 1000, 1, 2);
  CHECK(crop == Crop{.row = 0, .col = 493, .rows = 10, .cols = 13});
  CHECK(training_crop({.crop_area = 1, .mirror = 1}, 10, 20, 1, 2) ==
        Crop{.rows = 10, .cols = 20, .mirrored = true});
}

TEST_CASE("evaluation takes the square in the middle") {
  CHECK(evaluation_crop({.center_share = 0.875}, 256, 320) ==
        Crop{.row = 16, .col = 48, .rows = 224, .cols = 224});
  CHECK(evaluation_crop({.center_share = 1}, 32, 32) == Crop{.rows = 32, .cols = 32});
}

TEST_CASE("a crop beyond the picture is an error") {
  CHECK_THROWS_AS(pixels_of(picture(4, 4), {.col = 1, .rows = 4, .cols = 4}, plain(4)),
                  InternalError);
}

}  // namespace shale::test

// Compares image augmentations with those of torchvision on PIL images.
// test/fixtures/make_images.py computed the expected results in images/augment.json.
#include "shale/runtime/data/images/rand_augment.h"

#include <set>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/formula.h"
#include "shale/test/support/json.h"

namespace shale::test {

TEST_CASE("changes of pictures are torchvision's, to the bit") {
  const Json fixture = json_file(fixture_path("images/augment.json"));
  const Formula words("picture", fixture["seed"].get<uint32_t>());
  Image picture;
  picture.resize(fixture["rows"].integer(), fixture["cols"].integer(), 3);
  for (size_t i = 0; i < picture.pixels.size(); ++i) {
    picture.pixels[i] = uint8_t(40 + words.word(int64_t(i)) % 161);
  }
  std::set<std::string> names;
  for (const auto& result : fixture["results"]) {
    CAPTURE(result[0].get<std::string>(), result[1].get<int>(), result[2].get<bool>());
    int change = 0;
    while (change < kImageChanges && to_string(ImageChange(change)) != result[0]) ++change;
    REQUIRE(change < kImageChanges);
    names.insert(result[0].text());
    Image image = picture;
    change_image(image, ImageChange(change), result[1].get<int>(), result[2].boolean());
    std::string digits;
    for (const uint8_t value : image.pixels) {
      digits += "0123456789abcdef"[value / 16];
      digits += "0123456789abcdef"[value % 16];
    }
    CHECK(digits == result[3]);
  }
  CHECK(names.size() == kImageChanges);
}

TEST_CASE("changes need three channels and a strength that there is") {
  Image gray;
  gray.resize(2, 2, 1);
  CHECK_THROWS_AS(change_image(gray, ImageChange::kRotate, 1, false), InternalError);
  Image image;
  image.resize(2, 2, 3);
  CHECK_THROWS_AS(change_image(image, ImageChange::kRotate, 31, false), InternalError);
}

}  // namespace shale::test

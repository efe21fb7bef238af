// Tests reading images: PNG, JPEG, CIFAR and IDX files, folders of classes, synthetic shapes.
#include <array>
#include <filesystem>
#include <fstream>
#include <map>

#include "shale/base/error.h"
#include "shale/runtime/data/images/decode_internal.h"
#include "shale/runtime/data/images/image_dataset.h"
#include "shale/runtime/data/images/shapes.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/json.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

namespace fs = std::filesystem;

void write(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void decode(const std::string& bytes, Image& to) {
  decode_image({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()}, "a.png", to);
}

Image picture(int64_t rows, int64_t cols, int64_t channels, int seed) {
  Image image;
  image.resize(rows, cols, channels);
  for (size_t i = 0; i < image.pixels.size(); ++i) {
    image.pixels[i] = uint8_t((int(i) * 31 + seed * 57) % 256);
  }
  return image;
}

// Returns a CIFAR record: labels, then color planes.
std::string cifar_record(const std::vector<int>& labels, const Image& image) {
  std::string bytes;
  for (const int label : labels) bytes += char(label);
  for (int64_t c = 0; c < 3; ++c) {
    for (int64_t i = 0; i < 32 * 32; ++i) bytes += char(image.pixels[size_t(i * 3 + c)]);
  }
  return bytes;
}

std::string idx(const std::vector<uint32_t>& sizes, const std::string& elements) {
  std::string bytes = {0, 0, 8, char(sizes.size())};
  for (const uint32_t size : sizes) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += char(size >> shift & 255);
  }
  return bytes + elements;
}

std::string error_of(const ImageDataOptions& options) {
  try {
    open_images(options);
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

}  // namespace

TEST_CASE("a PNG file comes back as it was written") {
  const TempDir folder;
  for (const int64_t channels : {1, 3}) {
    const Image image = picture(7, 5, channels, 1);
    const std::string path = folder.file("a.png");
    write_png(path, image);
    Image got;
    decode(read(path), got);
    REQUIRE((got.rows == 7 && got.cols == 5 && got.channels == 3));
    for (int64_t i = 0; i < 7 * 5 * 3; ++i) {
      CHECK(got.pixels[size_t(i)] == image.pixels[size_t(channels == 3 ? i : i / 3)]);
    }
  }
}

TEST_CASE("JPEG files are read, gray ones as three equal channels") {
  Image image;
  decode(read(fixture_path("images/two_halves.jpg")), image);
  REQUIRE((image.rows == 8 && image.cols == 12 && image.channels == 3));
  // JPEG's conversion of colors changes uniform colors by 1 or 2.
  const auto near = [](const uint8_t* pixel, const std::array<int, 3>& want) {
    for (size_t c = 0; c < 3; ++c) CHECK(std::abs(int(pixel[c]) - want[c]) <= 8);
  };
  near(image.at(0, 0), {200, 40, 60});
  near(image.at(7, 11), {30, 90, 220});
  decode(read(fixture_path("images/gray.jpg")), image);
  REQUIRE((image.rows == 5 && image.cols == 7));
  for (const uint8_t value : image.pixels) CHECK(std::abs(int(value) - 77) <= 2);
}

TEST_CASE("samples of every kind of file are those of Pillow's RGB") {
  for (const Json& entry : json_file(fixture_path("images/decoded.json"))) {
    CAPTURE(entry["name"].text());
    const auto bytes = [&](const char* key) {
      const std::string& digits = entry[key].text();
      std::string all;
      for (size_t i = 0; i < digits.size(); i += 2) {
        all += static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16));
      }
      return all;
    };
    const std::string rgb = bytes("rgb");
    Image image;
    decode(bytes("file"), image);
    REQUIRE((image.rows == entry["rows"].integer() && image.cols == entry["cols"].integer()));
    REQUIRE(image.pixels.size() == rgb.size());
    // JPEG decoders differ in rounding.
    const int most = entry["name"].text().starts_with("jpeg") ? 2 : 0;
    for (size_t i = 0; i < rgb.size(); ++i) {
      CHECK(std::abs(int(image.pixels[i]) - int(static_cast<uint8_t>(rgb[i]))) <= most);
    }
  }
}

TEST_CASE("damaged and unknown image files are errors that name the file") {
  const TempDir folder;
  write_png(folder.file("a.png"), picture(20, 20, 3, 1));
  const std::string png = read(folder.file("a.png"));
  const std::string jpeg = read(fixture_path("images/two_halves.jpg"));
  std::string flipped = png;
  flipped[flipped.size() / 2] = char(flipped[flipped.size() / 2] ^ 0x55);
  for (const std::string& bytes : {std::string(), std::string("P6 1 1 255 abc"), png.substr(0, 40),
                                   png.substr(0, png.size() / 2), flipped, jpeg.substr(0, 100),
                                   jpeg.substr(0, jpeg.size() - 60)}) {
    Image image;
    CAPTURE(bytes.size());
    CHECK(contains(message_of<DataError>([&] { decode(bytes, image); }), "a.png: "));
  }
}

TEST_CASE("CIFAR-10 and CIFAR-100 are found by their files, and read plane by plane") {
  const TempDir folder;
  const std::string ten = folder.file("ten"), hundred = folder.file("hundred");
  const Image a = picture(32, 32, 3, 1), b = picture(32, 32, 3, 2);
  write(ten + "/data_batch_1.bin", cifar_record({3}, a));
  write(ten + "/data_batch_2.bin", cifar_record({9}, b) + cifar_record({0}, a));
  write(ten + "/test_batch.bin", cifar_record({1}, b));
  write(ten + "/batches.meta.txt", "a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n");
  const ImageSplits splits = open_images({.path = ten});
  CHECK(splits.format == ImageFormat::kCifar);
  REQUIRE(splits.train->size() == 3);
  REQUIRE(splits.val->size() == 1);
  CHECK(splits.classes[9] == "j");
  CHECK(splits.train->label(0) == 3);
  CHECK(splits.train->label(1) == 9);
  CHECK(splits.val->label(0) == 1);
  Image got;
  splits.train->read(2, got);
  CHECK(got.pixels == a.pixels);
  CHECK_THROWS_AS(splits.train->read(3, got), InternalError);

  write(hundred + "/train.bin", cifar_record({1, 99}, a) + cifar_record({1, 5}, b));
  const ImageSplits fine = open_images({.path = hundred, .val_fraction = 0.5});
  CHECK(fine.classes.size() == 100);
  REQUIRE((fine.train->size() == 1 && fine.val->size() == 1));
  CHECK(fine.train->label(0) + fine.val->label(0) == 104);

  write(ten + "/data_batch_2.bin", cifar_record({10}, b));
  CHECK(contains(error_of({.path = ten}), "data_batch_2.bin: the label of image 1 is 10"));
  write(ten + "/data_batch_2.bin", "short");
  CHECK(contains(error_of({.path = ten}), "5 bytes, expected a multiple of 3073"));
}

TEST_CASE("IDX files of images and labels are read, and must agree") {
  const TempDir folder;
  const std::string path = folder.path();
  write(path + "/train-images-idx3-ubyte", idx({3, 2, 2}, "abcdefghijkl"));
  write(path + "/train-labels-idx1-ubyte", idx({3}, std::string("\2\0\1", 3)));
  write(path + "/t10k-images.idx3-ubyte", idx({1, 2, 2}, "wxyz"));
  write(path + "/t10k-labels.idx1-ubyte", idx({1}, "\1"));
  const ImageSplits splits = open_images({.path = path});
  CHECK(splits.format == ImageFormat::kIdx);
  CHECK(splits.classes.size() == 3);
  Image image;
  splits.train->read(1, image);
  CHECK(std::string(image.pixels.begin(), image.pixels.end()) == "efgh");
  CHECK(image.channels == 1);
  CHECK(splits.train->label(0) == 2);
  splits.val->read(0, image);
  CHECK(std::string(image.pixels.begin(), image.pixels.end()) == "wxyz");

  write(path + "/train-labels-idx1-ubyte", idx({2}, "\1\1"));
  CHECK(contains(error_of({.path = path}), "2 labels"));
  write(path + "/train-labels-idx1-ubyte", idx({3}, "\1\1"));
  CHECK(contains(error_of({.path = path}), "sizes of 3 elements, with 2 bytes"));
  write(path + "/train-labels-idx1-ubyte", "\x1f\x8b" + idx({3}, "\1\1\1"));
  CHECK(contains(error_of({.path = path}), "magic number"));
}

TEST_CASE("a folder's folders are classes, in train and val if these are there") {
  const TempDir folder;
  const std::string path = folder.path();
  fs::create_directories(path + "/train/dog/more");
  fs::create_directories(path + "/train/cat");
  fs::create_directories(path + "/val/cat");
  write_png(path + "/train/dog/more/b.PNG", picture(3, 4, 3, 1));
  write_png(path + "/train/dog/a.png", picture(5, 4, 3, 2));
  write_png(path + "/train/cat/z.png", picture(6, 4, 3, 3));
  write_png(path + "/val/cat/v.png", picture(7, 4, 3, 4));
  write(path + "/train/dog/notes.txt", "no image");
  const ImageSplits splits = open_images({.path = path});
  CHECK(splits.format == ImageFormat::kFolder);
  CHECK(splits.classes == std::vector<std::string>{"cat", "dog"});
  REQUIRE((splits.train->size() == 3 && splits.val->size() == 1));
  Image image;
  std::vector<std::pair<int32_t, int64_t>> found;
  for (int64_t i = 0; i < 3; ++i) {
    splits.train->read(i, image);
    found.emplace_back(splits.train->label(i), image.rows);
  }
  CHECK(found == std::vector<std::pair<int32_t, int64_t>>{{0, 6}, {1, 5}, {1, 3}});
  const uint64_t fingerprint = splits.fingerprint;
  CHECK(open_images({.path = path}).fingerprint == fingerprint);
  write_png(path + "/train/dog/c.png", picture(5, 4, 3, 2));
  CHECK(open_images({.path = path}).fingerprint != fingerprint);
  fs::create_directories(path + "/val/cow");
  CHECK(contains(error_of({.path = path}), "cow: expected the name of a class"));
  CHECK(contains(error_of({.path = path + "/none"}), "no such file or folder"));
  CHECK(contains(error_of({.path = path + "/train/cat"}), "no class folders found"));
}

TEST_CASE("folders and names of images say what is for validation and test") {
  const TempDir folder;
  const auto put = [&](const std::string& name, int seed) {
    fs::create_directories(fs::path(folder.file(name)).parent_path());
    write_png(folder.file(name), picture(3, 4, 3, seed));
  };
  const auto sizes = [&](const std::string& path) {
    const ImageSplits splits = open_images({.path = folder.file(path), .val_fraction = 0});
    return std::pair(splits.train->size(), splits.val == nullptr ? 0 : splits.val->size());
  };
  using Sizes = std::pair<int64_t, int64_t>;
  for (const char* split : {"train", "validation", "test"}) {
    for (const char* label : {"dev board", "test tube"}) {
      put(cat("a/", split, "/", label, "/1.png"), 1);
    }
  }
  put("a/train/test tube/2.png", 2);
  CHECK(sizes("a") == Sizes{3, 2});
  fs::rename(folder.file("a/validation"), folder.file("a/validity"));
  CHECK(sizes("a") == Sizes{3, 2});  // test images serve as validation images
  // Folders of splits may be next to the folders of classes, or inside them.
  for (const char* name : {"b/x/1.png", "b/x/2.png", "b/y/1.png", "b/valid/x/1.png",
                           "b/y/dev/1.png", "b/y/test/1.png", "b/retrieval/1.png"}) {
    put(name, 3);
  }
  CHECK(sizes("b") == Sizes{4, 2});
  CHECK(contains(open_images({.path = folder.file("b")}).summary,
                 "skipped 1 images of the test split"));
  fs::create_directories(folder.file("b/z"));
  CHECK(contains(error_of({.path = folder.file("b")}), "z: no PNG or JPEG file for training"));
  CHECK(contains(error_of({.path = folder.file("b/x/1.png")}), "found a file"));
}

TEST_CASE("shapes are a function of seed and number, of classes that are equally likely") {
  const auto shapes = make_shapes({.images = 2400, .pixels = 16, .seed = 3});
  std::map<int32_t, int> counts;
  for (int64_t i = 0; i < shapes->size(); ++i) ++counts[shapes->label(i)];
  REQUIRE(counts.size() == shape_classes().size());
  for (const auto& [label, count] : counts) {
    CAPTURE(label);
    CHECK(count > 50);  // 100 expected, with a standard deviation of 10
    CHECK(count < 150);
  }
  Image a, b;
  shapes->read(7, a);
  make_shapes({.images = 9, .pixels = 16, .seed = 3})->read(7, b);
  CHECK(a.pixels == b.pixels);
  make_shapes({.images = 9, .pixels = 16, .seed = 4})->read(7, b);
  CHECK(a.pixels != b.pixels);
  CHECK_THROWS_AS(make_shapes({.images = 9, .pixels = 7}), ConfigError);
  CHECK_THROWS_AS(shapes->read(2400, a), InternalError);
  const ImageSplits splits = open_images({.path = "shapes", .made_images = 40, .made_pixels = 8});
  CHECK((splits.train->size() == 40 && splits.val->size() == 4));
}

TEST_CASE("an image has a limit, far below what a small file can ask for") {
  CHECK_NOTHROW(image_internal::check_size(8192, 8192, "a.png"));
  CHECK(message_of<DataError>([] { image_internal::check_size(8193, 8192, "a.png"); }) ==
        "a.png: 8192 x 8193 pixels, expected 1 to 67108864 pixels in all");
}

}  // namespace shale::test

// Tests webdataset tar files made here: samples, names of all kinds, and damage.

#include "shale/base/error.h"
#include "shale/runtime/data/images/image_dataset.h"
#include "shale/runtime/data/images/tar_index.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/tar_member.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

std::string png_of(uint8_t value) {
  const TempDir dir;
  Image image;
  image.resize(2, 2, 3);
  std::fill(image.pixels.begin(), image.pixels.end(), value);
  write_png(dir.file("x.png"), image);
  return read_file(dir.file("x.png"));
}

const std::string kEnd(1024, '\0');

std::string sample(const std::string& key, uint8_t value, const std::string& label) {
  return tar_member(key + ".png", png_of(value)) + tar_member(key + ".cls", label);
}

ImageSplits open(const std::string& path, int64_t max_damaged = 0, double val_fraction = 0) {
  return open_images({.path = path, .val_fraction = val_fraction, .max_damaged = max_damaged});
}

uint8_t value_of(const ImageDataset& images, int64_t index) {
  Image image;
  images.read(index, image);
  return image.pixels.at(0);
}

std::string pax(const std::string& value, const std::string& key = "path") {
  const std::string rest = " " + key + "=" + value + "\n";
  size_t length = rest.size() + 2;
  if (std::to_string(length).size() != 2) ++length;
  return std::to_string(length) + rest;
}

}  // namespace

TEST_CASE("samples of tars are neighbours with one key, whatever else is there") {
  const TempDir dir;
  const std::string long_key = "folder/" + std::string(120, 'k');
  const std::string first = tar_member("./", "", '5') + sample("a/0001", 10, "3\n") +
                            tar_member("a/0002.JPG.txt", "?") + tar_member("a/0002.cls", "0") +
                            tar_member("a/0002.seg.png", "no picture of the sample") +
                            tar_member("a/0002.png", png_of(20)) +
                            tar_member("__notes__.cls", "x") + tar_member("README", "none") + kEnd;
  const std::string second =
      tar_member("././@LongLink", long_key + ".png", 'L') + tar_member("cut", png_of(30)) +
      tar_member("././@PaxHeader", pax(long_key + ".cls"), 'x') + tar_member("cut", "1") +
      tar_member("0004.png", png_of(40), '0', "deep/folders") +
      tar_member("0004.cls", "2", '\0', "deep/folders") + kEnd;
  for (const char* name : {"s-08.tar", "s-09.tar"}) dir.write(name, first);
  dir.write("s-10.tar", second);
  const ImageSplits splits = open(dir.file("s-{08..10}.tar"));
  CHECK(splits.format == ImageFormat::kWebdataset);
  CHECK(splits.val == nullptr);
  CHECK(splits.classes == std::vector<std::string>{"0", "1", "2", "3"});
  REQUIRE(splits.train->size() == 6);
  const std::vector<std::pair<int, int>> want = {{10, 3}, {20, 0}, {10, 3},
                                                 {20, 0}, {30, 1}, {40, 2}};
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(i);
    CHECK(value_of(*splits.train, int64_t(i)) == want[i].first);
    CHECK(splits.train->label(int64_t(i)) == want[i].second);
  }
  CHECK_THROWS_AS(splits.train->label(6), InternalError);
}

TEST_CASE("a folder's tars whose names say it are for validation") {
  const TempDir dir;
  for (const char* name : {"x-val-0.tar", "x-interval-1.tar", "x-train-0.tar", "x-test-0.tar"}) {
    dir.write(name, sample("key", uint8_t(name[2] + name[8]), "1") + kEnd);
  }
  const ImageSplits splits = open(dir.path());
  CHECK(splits.train->size() == 2);
  REQUIRE(splits.val != nullptr);
  CHECK(splits.val->size() == 1);
  CHECK(contains(splits.summary, "skipped 1 tars of the test split"));
  CHECK(splits.fingerprint == open(dir.path()).fingerprint);
  CHECK(open(dir.file("x-val-0.tar")).train->size() == 1);
  dir.write("x-train-0.tar", sample("another", 1, "1") + kEnd);
  CHECK(splits.fingerprint != open(dir.path()).fingerprint);
}

TEST_CASE("damaged samples of tars are counted and named, and one by one cannot be read") {
  const TempDir dir;
  const std::string good = sample("good", 1, "1");
  const auto message = [&](const std::string& content) {
    const std::string path = dir.write("a.tar", content);
    const std::string text = message_of<DataError>([&] { open(path); });
    CHECK(contains(text, "a.tar"));
    CHECK(contains(text, "1 sample is damaged, expected at most 0 (--max-damaged)"));
    // Within the limit of damaged samples, the other samples can be read.
    const ImageSplits splits = open(path, 1);
    int damaged = 0;
    for (int64_t i = 0; i < splits.train->size(); ++i) {
      Image image;
      try {
        splits.train->read(i, image);
      } catch (const DataError& error) {
        CHECK(text.starts_with(error.what()));
        ++damaged;
      }
    }
    CHECK(damaged == 1);
    CHECK(splits.train->size() >= 2);
    return text;
  };
  CHECK(contains(message(good + tar_member("b.png", png_of(1)) + kEnd), "b has no .cls"));
  CHECK(contains(message(good + tar_member("b.cls", "1") + kEnd), "b has no .jpg, .jpeg or .png"));
  CHECK(contains(message(good + sample("b", 1, "cat") + kEnd), "b has the class cat"));
  CHECK(contains(message(good + sample("b", 1, "1") + tar_member("b.cls", "1") + kEnd),
                 "b has .cls twice"));
  CHECK(contains(message(good + sample("b", 1, "1")), "expected a block of zeros at the end"));
  const std::string cut = good + tar_member("c.png", std::string(5000, 'x'));
  CHECK(contains(message(cut.substr(0, cut.size() - 3000)),
                 "c.png has 5000 bytes, but the file ends after"));
  std::string flipped = good + sample("b", 1, "1") + kEnd;
  flipped[good.size()] = 'c';
  CHECK(contains(message(flipped), cat("no header at byte ", good.size())));
}

TEST_CASE("patterns and tars that are not there are errors that say so") {
  const TempDir dir;
  CHECK(contains(message_of<ConfigError>([&] { open(dir.file("a-{1-3}.tar")); }), "not a range"));
  CHECK(
      contains(message_of<MissingInputError>([&] { open(dir.file("a-{1..3}.tar")); }), "a-1.tar"));
  const std::string empty = dir.write("b.tar", kEnd);
  CHECK(contains(message_of<MissingInputError>([&] { open(empty); }), "no sample with an image"));
}

TEST_CASE("pax headers say how large a member is, and which extensions belong to it") {
  const auto members = [](const std::string& archive) {
    std::string found;
    const std::string problem = image_internal::index_tar(
        std::as_bytes(std::span(archive)), [&](const image_internal::TarMember& member) {
          found += cat(member.name, " ", member.bytes, "; ");
        });
    return found + problem;
  };
  // The content of this member looks like another member. Only the pax record tells a reader how
  // long the content is.
  const std::string inside = tar_member("inside.cls", "1"), block(512, 'x');
  const std::string about = tar_member("p", pax(std::to_string(512 + inside.size()), "size"), 'x');
  CHECK(members(about + tar_member("a", block) + inside + tar_member("b", "2") + kEnd) ==
        "a 1536; b 1; ");
  // Records with a long name and a long link may precede a member in either order. They apply to
  // that member only.
  CHECK(members(tar_member("l", "long", 'L') + tar_member("k", "link", 'K') +
                tar_member("cut", "1") + tar_member("b", "2") + kEnd) == "long 1; b 1; ");
  CHECK(contains(members(tar_member("p", pax("-1", "size"), 'x') + kEnd), "malformed pax records"));
  CHECK(contains(members(tar_member("p", "5 path=a\n", 'x') + kEnd), "malformed pax records"));
  CHECK(contains(members(tar_member("g", pax("7", "size"), 'g') + kEnd), "found them at byte"));
  CHECK(members(tar_member("g", pax("a commit", "comment"), 'g') + kEnd).empty());
}

}  // namespace shale::test

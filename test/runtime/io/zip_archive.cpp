#include "shale/runtime/io/zip_archive.h"

#include <cstring>

#include "shale/base/error.h"
#include "shale/runtime/io/zip_writer.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;

namespace {

ZipMembers read(const std::string& archive) {
  return read_zip(std::as_bytes(std::span(archive)), "x.pt");
}

std::string text_of(std::span<const std::byte> data) {
  return {reinterpret_cast<const char*>(data.data()), data.size()};
}

std::string archive() {
  ZipLayout zip;
  std::string text = zip.add("a/data.pkl", "pickle");
  text += zip.add("a/empty", "");
  return text + zip.directory();
}

template <typename T>
std::string changed(std::string text, size_t at, T value) {
  std::memcpy(text.data() + at, &value, sizeof value);
  return text;
}

}  // namespace

TEST_CASE("members of an archive are found, also with 64-bit sizes", "[io]") {
  const std::string text = archive();
  const ZipMembers members = read(text);
  CHECK(members.size() == 2);
  CHECK(text_of(members.at("a/data.pkl")) == "pickle");
  CHECK(members.at("a/empty").empty());
  const std::string of_torch = test::read_file(test::fixture_path("checkpoints/types.pt"));
  CHECK(read(of_torch).contains("types/data.pkl"));  // PyTorch's archive has 32-bit sizes
}

TEST_CASE("data begins where the writer was told to align it", "[io]") {
  ZipLayout zip;
  std::string text = zip.add("a/x", "123");
  text += zip.add_header("a/data", 5, 64);
  CHECK(text.size() % 64 == 0);
  zip.set_crc(0);
  text += "12345" + zip.directory();
  CHECK(text_of(read(text).at("a/data")) == "12345");
}

TEST_CASE("a malformed archive is an error", "[io]") {
  const std::string text = archive();
  const size_t directory = text.find("PK\x01\x02"), end = text.size() - 22;
  const size_t end64 = text.find("PK\x06\x06");
  const std::pair<std::string, const char*> cases[] = {
      {text.substr(0, text.size() - 1), "no directory at its end"},
      {text.substr(1), "no 64-bit directory"},
      {"PK", "shorter than an empty archive"},
      {changed<uint16_t>(text, directory + 10, 8), "'a/data.pkl' is compressed"},
      {changed<uint16_t>(text, directory + 8, 1), "is encrypted"},
      {changed<uint32_t>(text, directory + 20, 9), "compressed and uncompressed sizes differ"},
      {changed<uint32_t>(text, directory, 0), "its directory is malformed"},
      {changed<uint16_t>(text, end + 4, 1), "split into several files"},
      {changed<uint64_t>(text, end64 + 32, 1), "another size than it claims"},
      {changed<uint64_t>(text, end64 + 32, uint64_t{1} << 40), "more members than"},
      {changed<uint64_t>(text, end64 + 40, ~uint64_t{0}), "its directory is cut off"},
      {changed<uint64_t>(text, end64 + 48, ~uint64_t{0}), "its directory is cut off"},
      {changed<uint64_t>(text, end - 12, ~uint64_t{0}), "no 64-bit directory"},
      {changed<char>(text, 30, 'b'), "not where the directory says"},
      // Sizes and places in the 64-bit fields of the first member.
      {changed<uint64_t>(text, directory + 60, 1000), "compressed and uncompressed sizes differ"},
      {changed<uint64_t>(changed<uint64_t>(text, directory + 60, 1000), directory + 68, 1000),
       "is cut off"},
      {changed<uint64_t>(text, directory + 76, ~uint64_t{0} - 3), "not where the directory says"},
      {changed<uint16_t>(text, directory + 58, 8), "a 64-bit size is missing"},
  };
  for (const auto& [bytes, problem] : cases) {
    CAPTURE(problem);
    const std::string message = message_of<DataError>([&, &bytes = bytes] { read(bytes); });
    CHECK(message.starts_with("x.pt: zip archive: "));
    CHECK(contains(message, problem));
  }
  ZipLayout twice;
  std::string same = twice.add("a", "1");
  same += twice.add("a", "2");
  same += twice.directory();
  CHECK(contains(message_of<DataError>([&] { read(same); }), "member 'a' appears twice"));
}

}  // namespace shale

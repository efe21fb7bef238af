#include "shale/runtime/io/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

// Returns a file with this header, without padding, and `data_bytes` bytes of data.
std::string make_file(const std::string& header, size_t data_bytes = 0) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, 'd');
}

SafetensorsHeader parse(const std::string& file) {
  return parse_safetensors_header(std::as_bytes(std::span(file)), "x.safetensors");
}

std::string complaint(const std::string& header, size_t data_bytes = 0) {
  const std::string file = make_file(header, data_bytes);
  const std::string message = message_of<DataError>([&] { parse(file); });
  CHECK(message.starts_with("x.safetensors: "));
  return message;
}

std::string entry(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

// Checks that element i is first + i.
template <typename T>
void check_counting(const SafetensorsFile& file, const char* name, double first,
                    const Shape& shape) {
  CAPTURE(name);
  const SafetensorsEntry* found = file.find(name);
  REQUIRE(found != nullptr);
  const View view = file.view(*found);
  REQUIRE(view.dtype == dtype_of<T>);
  REQUIRE(view.shape == shape);
  for (int64_t i = 0; i < view.numel(); ++i) {
    const T value = view.as<T>()[i];
    if constexpr (std::is_class_v<T>) {
      CHECK(to_f32(value) == first + static_cast<double>(i));
    } else {
      CHECK(static_cast<double>(value) == first + static_cast<double>(i));
    }
  }
}

}  // namespace

TEST_CASE("a file of the reference implementation is read", "[io]") {
  const SafetensorsFile file(test::fixture_path("official.safetensors"));
  CHECK(file.entries().size() == 13);
  CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
  check_counting<float>(file, "matrix", 0, {2, 3});
  check_counting<float>(file, "a.vector", 1, {5});
  check_counting<bf16>(file, "brain", 2, {3});
  check_counting<f16>(file, "half", 3, {2, 1, 2});
  check_counting<double>(file, "double", 4, {2});
  check_counting<int64_t>(file, "long", 5, {1});
  check_counting<int32_t>(file, "int", 6, {3});
  check_counting<uint8_t>(file, "byte", 7, {3});
  check_counting<float>(file, "scalar", 8, Shape{});
  check_counting<float>(file, "empty", 9, {0, 4});
  check_counting<float>(file, "odd \"name\" \\ / \n \u00e9\u4e2d", 10, {1});
  check_counting<uint16_t>(file, "u16", 11, {1});
  check_counting<uint32_t>(file, "u32", 12, {1});
  CHECK(file.find("absent") == nullptr);
}

TEST_CASE("types that Shale does not have are listed, but not viewed", "[io]") {
  const SafetensorsFile file(test::fixture_path("foreign.safetensors"));
  CHECK(file.entries().size() == 8);
  for (const char* name : {"bool", "i8", "i16", "u64", "c64", "e4m3", "e5m2"}) {
    CAPTURE(name);
    const SafetensorsEntry* found = file.find(name);
    REQUIRE(found != nullptr);
    CHECK_FALSE(file.bytes(*found).empty());
    CHECK(contains(message_of<DataError>([&] { file.view(*found); }), found->type->name));
  }
  const View known = file.view(*file.find("known"));
  CHECK((known.as<float>()[0] == 1 && known.as<float>()[1] == 1));
}

TEST_CASE("every shortened file is rejected", "[io]") {
  const std::string good = test::read_file(test::fixture_path("official.safetensors"));
  REQUIRE(parse(good).entries.size() == 13);
  for (size_t size = 0; size < good.size(); ++size) {
    REQUIRE_THROWS_AS(parse(good.substr(0, size)), DataError);
  }
  REQUIRE_THROWS_AS(parse(good + '\0'), DataError);
}

TEST_CASE("a flipped bit in the header gives an error or a header that is consistent", "[io]") {
  for (const char* name : {"official.safetensors", "foreign.safetensors"}) {
    const std::string good = test::read_file(test::fixture_path(name));
    const auto header_bytes = static_cast<size_t>(parse(good).data_begin);
    int rejected = 0;
    for (size_t bit = 0; bit < header_bytes * 8; ++bit) {
      std::string bad = good;
      bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
      try {
        int64_t end = 0;
        for (const SafetensorsEntry& found : parse(bad).entries) {
          REQUIRE(found.bytes >= 0);
          REQUIRE((found.begin >= end &&
                   found.begin + found.bytes <= static_cast<int64_t>(bad.size())));
          REQUIRE(safetensors_bytes(*found.type, found.shape) == found.bytes);
          end = found.begin + found.bytes;
        }
      } catch (const DataError&) {
        ++rejected;
      }
    }
    // Most bit flips in the header must be rejected. Only changes of letters in names may go
    // undetected, not changes of lengths, shapes and offsets.
    CHECK(rejected > static_cast<int>(header_bytes * 8 / 2));
  }
}

TEST_CASE("lengths of the header beyond the file or the limit are rejected", "[io]") {
  for (const uint64_t length : {uint64_t{3}, uint64_t{1000}, uint64_t{100'000'001},
                                uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string file = make_file("{}");
    std::memcpy(file.data(), &length, 8);
    CHECK_THROWS_AS(parse(file), DataError);
  }
  CHECK(parse(make_file("{}")).entries.empty());
  CHECK(parse(make_file("{}     ")).entries.empty());
}

TEST_CASE("shapes whose size overflows are rejected", "[io]") {
  for (const char* shape :
       {"[4294967296,4294967296]", "[9223372036854775807,2]", "[2305843009213693952,8]",
        "[9223372036854775807]", "[18446744073709551615]", "[18446744073709551616]",
        "[4611686018427387904,4,0]"}) {
    CAPTURE(shape);
    CHECK_THROWS_AS(parse(make_file("{\"a\":" + entry("F32", shape, "[0,0]") + "}")), DataError);
  }
}

TEST_CASE("offsets must fill the data without gap or overlap", "[io]") {
  const auto two = [](const std::string& first, const std::string& second) {
    return "{\"a\":" + entry("U8", "[4]", first) + ",\"b\":" + entry("U8", "[4]", second) + "}";
  };
  CHECK(parse(make_file(two("[0,4]", "[4,8]"), 8)).entries.size() == 2);
  CHECK(parse(make_file(two("[4,8]", "[0,4]"), 8)).entries.front().name == "b");
  // The ranges overlap.
  CHECK(contains(complaint(two("[0,4]", "[2,6]"), 6), "begins at 2, expected 4"));
  // The ranges are equal.
  CHECK(contains(complaint(two("[0,4]", "[0,4]"), 4), "begins at 0, expected 4"));
  // Byte 4 belongs to no tensor.
  CHECK(contains(complaint(two("[0,4]", "[5,9]"), 9), "begins at 5, expected 4"));
  CHECK(contains(complaint(two("[1,5]", "[5,9]"), 9), "begins at 1, expected 0"));
  CHECK(contains(complaint(two("[0,4]", "[4,8]"), 9), "9 bytes follow"));
  CHECK(contains(complaint(two("[0,4]", "[4,8]"), 7), "7 bytes follow"));
  CHECK(contains(complaint(two("[0,4]", "[8,4]"), 8), "before they begin"));
  CHECK(contains(complaint(two("[0,4]", "[4,7]"), 7), "3 bytes of data, expected 4"));
  CHECK_THROWS_AS(parse(make_file(two("[0,4]", "[9223372036854775804,9223372036854775808]"), 8)),
                  DataError);
  CHECK_THROWS_AS(
      parse(make_file(
          "{\"a\":" + entry("U8", "[9223372036854775807]", "[0,9223372036854775807]") + "}", 8)),
      DataError);
}

TEST_CASE("empty tensors may lie anywhere between the others", "[io]") {
  const SafetensorsHeader header = parse(make_file(
      "{\"a\":" + entry("U8", "[4]", "[0,4]") + ",\"none\":" + entry("F32", "[0]", "[0,0]") +
          ",\"last\":" + entry("F32", "[7,0]", "[4,4]") + "}",
      4));
  CHECK(header.entries.size() == 3);
  CHECK(header.entries.front().name == "none");
}

TEST_CASE("types of less than a byte count bits", "[io]") {
  CHECK(parse(make_file("{\"a\":" + entry("F4", "[3,2]", "[0,3]") + "}", 3)).entries.size() == 1);
  CHECK(parse(make_file("{\"a\":" + entry("F6_E2M3", "[4]", "[0,3]") + "}", 3)).entries.size() ==
        1);
  CHECK(contains(complaint("{\"a\":" + entry("F4", "[3]", "[0,1]") + "}", 1), "F4[3]"));
}

TEST_CASE("headers that are not what the format says are rejected", "[io]") {
  const std::string good = entry("U8", "[0]", "[0,0]");
  CHECK(parse(make_file("{\"a\":" + good + "}")).entries.size() == 1);
  const std::vector<std::string> bad = {
      "",
      " {}",
      "[]",
      "null",
      "{",
      "{}{}",
      "{}x",
      R"({"a":1})",
      R"({"a":null})",
      R"({"a":"text"})",
      R"({"a":[]})",
      R"({"a":{}})",
      R"({"a":{"dtype":"U8","shape":[0]}})",
      R"({"a":{"dtype":"U8","data_offsets":[0,0]}})",
      R"({"a":{"shape":[0],"data_offsets":[0,0]}})",
      "{\"a\":" + entry("U9", "[0]", "[0,0]") + "}",
      "{\"a\":" + entry("u8", "[0]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[0.0]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[-0]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[0e0]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[-1]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[\"0\"]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[[0]]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[{}]", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "0", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "null", "[0,0]") + "}",
      "{\"a\":" + entry("U8", "[0]", "[0]") + "}",
      "{\"a\":" + entry("U8", "[0]", "[]") + "}",
      "{\"a\":" + entry("U8", "[0]", "[0,0,0]") + "}",
      "{\"a\":" + entry("U8", "[0]", "{}") + "}",
      "{\"a\":" + entry("U8", "[0,1,1,1,1,1,1,1,1]", "[0,0]") + "}",
      R"({"a":{"dtype":["U8"],"shape":[0],"data_offsets":[0,0]}})",
      R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"more":1}})",
      R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
      R"({"a":{"dtype":"U8","shape":[0],"shape":[0],"data_offsets":[0,0]}})",
      "{\"a\":" + good + ",\"a\":" + good + "}",
      // The same name twice, once written with an escape.
      "{\"a\":" + good + ",\"\\u0061\":" + good + "}",
      "{\"" + std::string(513, 'n') + "\":" + good + "}",
      "{\"\xff\":" + good + "}",          // the name is not UTF-8
      "{\"\xc0\x80\":" + good + "}",      // the name has an overlong encoding
      "{\"\xed\xa0\x80\":" + good + "}",  // the name has half a surrogate pair
      "{\"a\nb\":" + good + "}",          // control characters need an escape
      R"({"__metadata__":1})",
      R"({"__metadata__":"x"})",
      R"({"__metadata__":["x"]})",
      R"({"__metadata__":{"a":1}})",
      R"({"__metadata__":{"a":null}})",
      R"({"__metadata__":{"a":{}}})",
      R"({"__metadata__":{"a":["x"]}})",
      R"({"__metadata__":{"a":"x","a":"x"}})",
      R"({"__metadata__":{},"__metadata__":{}})",
      "{\"a\":" + std::string(100'000, '['),
      "{\"a\":" + std::string(100'000, '{'),
  };
  for (const std::string& header : bad) {
    CAPTURE(header.substr(0, 100));
    CHECK_THROWS_AS(parse(make_file(header)), DataError);
  }
}

TEST_CASE("more tensors than the limit are rejected", "[io]") {
  const auto with_tensors = [](int64_t count) {
    std::string header = "{";
    for (int64_t i = 0; i < count; ++i) {
      header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":" + entry("U8", "[0]", "[0,0]");
    }
    return make_file(header + "}");
  };
  CHECK(parse(with_tensors(kMaxSafetensorsTensors)).entries.size() == 100'000);
  CHECK_THROWS_AS(parse(with_tensors(kMaxSafetensorsTensors + 1)), DataError);
}

TEST_CASE("more metadata than the limit is rejected", "[io]") {
  const auto with_metadata = [](int64_t count) {
    std::string header = "{\"__metadata__\":{";
    for (int64_t i = 0; i < count; ++i) {
      header += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":\"\"";
    }
    return make_file(header + "}}");
  };
  CHECK(parse(with_metadata(kMaxSafetensorsMetadata)).metadata.size() == 10'000);
  CHECK_THROWS_AS(parse(with_metadata(kMaxSafetensorsMetadata + 1)), DataError);
}

TEST_CASE("a message about a header is one short line, whatever is in it", "[io]") {
  const std::string good = entry("U8", "[0]", "[0,0]");
  const std::string wild = "\\n\\u001b[2J" + std::string(400, 'x');
  for (const std::string& header :
       {"{\"" + wild + "\":1}", "{\"a\":" + entry(wild, "[0]", "[0,0]") + "}",
        "{\"" + wild + "\":" + entry("U8", "[1]", "[1,2]") + "}",
        "{\"" + wild + "\":" + good + ",\"" + wild + "\":" + good + "}",
        "{\"a\":{\"" + wild + "\":1}}"}) {
    const std::string message = complaint(header, 1);
    CAPTURE(message);
    CHECK(message.size() < 400);
    CHECK(message.find_first_of("\n\x1b") == message.npos);
  }
}

TEST_CASE("ranks and alignments that a view cannot have are errors of the view only", "[io]") {
  const TempDir dir;
  const std::string deep = "{\"a\":" + entry("F32", "[1,1,1,1,1,1,1]", "[0,4]") + "}";
  const SafetensorsFile deep_file(dir.write("deep", make_file(deep, 4)));
  CHECK(contains(message_of<DataError>([&] { deep_file.view(deep_file.entries()[0]); }),
                 "7 dimensions"));
  std::string odd = "{\"a\":" + entry("F32", "[1]", "[0,4]") + "}";
  while (odd.size() % 4 != 1) odd += ' ';
  const SafetensorsFile odd_file(dir.write("odd", make_file(odd, 4)));
  CHECK(contains(message_of<DataError>([&] { odd_file.view(odd_file.entries()[0]); }), "aligned"));
  CHECK(odd_file.bytes(odd_file.entries()[0]).size() == 4);
}

TEST_CASE("a missing, an empty and a strange file are told apart", "[io]") {
  const TempDir dir;
  CHECK_THROWS_AS(SafetensorsFile(dir.file("absent")), MissingInputError);
  CHECK_THROWS_AS(SafetensorsFile(dir.write("empty", "")), DataError);
  CHECK_THROWS_AS(SafetensorsFile(dir.path()), DataError);
  CHECK_THROWS_AS(SafetensorsFile(dir.write("text", "This is no safetensors file.")), DataError);
  CHECK_THROWS_AS(SafetensorsFolder(dir.path()), MissingInputError);
}

TEST_CASE("a folder of several files is read through its index, and must agree with it", "[io]") {
  const TempDir dir;
  const auto one = [](const std::string& name) {
    return make_file("{\"" + name + "\":" + entry("U8", "[4]", "[0,4]") + "}", 4);
  };
  const auto open = [&](const std::string& weight_map) {
    dir.write("model.safetensors.index.json", "{\"weight_map\":" + weight_map + "}");
    return SafetensorsFolder(dir.path()).tensors().size();
  };
  dir.write("m-1.safetensors", one("a"));
  dir.write("m-2.safetensors", one("b"));
  CHECK(open(R"({"a":"m-1.safetensors","b":"m-2.safetensors"})") == 2);
  const std::vector<std::string> bad = {
      R"({"a":"m-1.safetensors","b":"m-1.safetensors"})",  // the index names the wrong file for b
      R"({"a":"m-2.safetensors","b":"m-1.safetensors"})",
      R"({"b":"m-1.safetensors"})",
      R"({"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-2.safetensors"})",
      R"({"a":"../m-1.safetensors"})",
      R"({"a":"/etc/passwd"})",
      R"({"a":".hidden"})",
      R"({"a":""})",
      R"({"a":1})",
      R"(["a"])",
      R"({"a":"m-1.safetensors","a":"m-1.safetensors"})",
  };
  for (const std::string& weight_map : bad) {
    CAPTURE(weight_map);
    CHECK_THROWS_AS(open(weight_map), DataError);
  }
  CHECK_THROWS_AS(open(R"({"a":"absent.safetensors"})"), MissingInputError);
  dir.write("m-2.safetensors", one("a"));
  CHECK(contains(
      message_of<DataError>([&] { open(R"({"a":"m-1.safetensors","b":"m-2.safetensors"})"); }),
      "is also in"));
  // The single file takes precedence over shards, as in other libraries.
  dir.write("model.safetensors", one("c"));
  const SafetensorsFolder folder(dir.path());
  CHECK(folder.tensors().size() == 1);
  CHECK(folder.find("c") != nullptr);
  CHECK(folder.find("a") == nullptr);
}

}  // namespace shale

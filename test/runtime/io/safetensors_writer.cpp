#include "shale/runtime/io/safetensors_writer.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/runtime/io/safetensors_index.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/file_size_limit.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::FileSizeLimit;
using test::message_of;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const TempDir& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::byte> filled(int64_t bytes, int value) {
  return std::vector<std::byte>(static_cast<size_t>(bytes), static_cast<std::byte>(value));
}

}  // namespace

TEST_CASE("the file is the reference implementation's, byte for byte", "[io]") {
  const SafetensorsFile official(test::fixture_path("official.safetensors"));
  // Declares tensors in arbitrary order; the order in the file must not depend on it.
  std::vector<SafetensorsSpec> specs;
  for (const SafetensorsEntry& entry : official.entries()) {
    specs.insert(specs.begin(), {entry.name, *entry.type->dtype, entry.shape});
  }
  const TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const bool in_pieces = GENERATE(false, true);
  SafetensorsWriter writer(path, specs);
  for (const SafetensorsSpec& spec : specs) {
    const SafetensorsEntry& entry = *official.find(spec.name);
    if (in_pieces) {
      for (const std::byte& byte : official.bytes(entry)) writer.write(std::span(&byte, 1));
    } else {
      writer.write(official.view(entry));
    }
  }
  writer.commit();
  CHECK(test::read_file(path) == test::read_file(test::fixture_path("official.safetensors")));
}

TEST_CASE("what is written is read back, metadata included", "[io]") {
  const TempDir dir;
  const std::string path = dir.file("x.safetensors");
  const std::map<std::string, std::string> metadata = {
      {"note", "two\nlines \"quoted\""}, {"format", "shale"}, {"bad", "\xff"}};
  std::vector<float> values = {1.5f, -2, 3, 4, 5, 6};
  SafetensorsWriter writer(path, {{"w", DType::kF32, {2, 3}}}, metadata);
  writer.write(make_view(values.data(), {2, 3}));
  writer.commit();
  const SafetensorsFile file(path);
  CHECK(file.metadata().at("note") == "two\nlines \"quoted\"");
  CHECK(file.metadata().at("format") == "shale");
  CHECK(file.metadata().at("bad") == "\ufffd");  // U+FFFD replaces bytes that are not UTF-8
  const View view = file.view(*file.find("w"));
  CHECK(std::equal(values.begin(), values.end(), view.as<float>()));
}

TEST_CASE("a file without tensors is fine", "[io]") {
  const TempDir dir;
  SafetensorsWriter writer(dir.file("x"), {});
  CHECK(writer.current() == nullptr);
  writer.commit();
  CHECK(SafetensorsFile(dir.file("x")).entries().empty());
}

TEST_CASE("nothing has the file's name before commit, and nothing stays without it", "[io]") {
  const TempDir dir;
  dir.write("x", "what was there before");
  {
    SafetensorsWriter writer(dir.file("x"), {{"w", DType::kU8, {4}}});
    writer.write(filled(4, 1));
    CHECK(names_in(dir).size() == 2);
    CHECK(test::read_file(dir.file("x")) == "what was there before");
  }
  CHECK(names_in(dir) == std::vector<std::string>{"x"});
  CHECK(test::read_file(dir.file("x")) == "what was there before");
}

TEST_CASE("two writers of one file do not disturb each other", "[io]") {
  const TempDir dir;
  SafetensorsWriter first(dir.file("x"), {{"w", DType::kU8, {4}}});
  SafetensorsWriter second(dir.file("x"), {{"w", DType::kU8, {4}}});
  first.write(filled(4, 1));
  second.write(filled(4, 2));
  second.commit();
  first.commit();
  const SafetensorsFile file(dir.file("x"));
  CHECK(file.bytes(file.entries()[0])[3] == std::byte{1});
  CHECK(names_in(dir) == std::vector<std::string>{"x"});
}

TEST_CASE("the mode follows the umask", "[io]") {
  const TempDir dir;
  const mode_t saved = ::umask(027);
  SafetensorsWriter(dir.file("x"), {}).commit();
  ::umask(saved);
  struct stat info {};
  REQUIRE(::stat(dir.file("x").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0640);
}

TEST_CASE("data that does not fit the declaration is an error", "[io]") {
  const TempDir dir;
  std::vector<float> values(6);
  SafetensorsWriter writer(dir.file("x"), {{"w", DType::kF32, {2, 3}}});
  CHECK_THROWS_AS(writer.commit(), InternalError);
  CHECK_THROWS_AS(writer.write(make_view(values.data(), {3, 2})), InternalError);
  CHECK_THROWS_AS(writer.write(make_view(values.data(), DType::kI32, {2, 3})), InternalError);
  View strided = make_view(values.data(), {2, 3});
  strided.strides = {1, 2};
  CHECK_THROWS_AS(writer.write(strided), InternalError);
  CHECK_THROWS_AS(writer.write(filled(25, 0)), InternalError);
  writer.write(filled(4, 0));
  CHECK_THROWS_AS(writer.write(make_view(values.data(), {2, 3})), InternalError);
  CHECK_THROWS_AS(writer.commit(), InternalError);
  writer.write(filled(20, 0));
  CHECK_THROWS_AS(writer.write(filled(1, 0)), InternalError);
  CHECK_THROWS_AS(writer.write(make_view(values.data(), {2, 3})), InternalError);
  CHECK_NOTHROW(writer.commit());
}

TEST_CASE("declarations that no reader would accept are errors", "[io]") {
  const TempDir dir;
  const auto declare = [&](std::vector<SafetensorsSpec> specs) {
    SafetensorsWriter(dir.file("x"), std::move(specs));
  };
  CHECK_THROWS_AS(declare({{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}), InternalError);
  CHECK_THROWS_AS(declare({{"__metadata__", DType::kF32, {1}}}), InternalError);
  CHECK_THROWS_AS(declare({{std::string(513, 'n'), DType::kF32, {1}}}), InternalError);
  CHECK_THROWS_AS(declare({{"\xff", DType::kF32, {1}}}), InternalError);
  CHECK_THROWS_AS(declare({{"a", DType::kF32, std::vector<int64_t>(9, 1)}}), InternalError);
  CHECK_THROWS_AS(declare({{"a", DType::kF32, {-1}}}), InternalError);
  CHECK_THROWS_AS(declare({{"a", DType::kF32, {int64_t{1} << 40, int64_t{1} << 40}}}),
                  InternalError);
  CHECK(names_in(dir).empty());
}

TEST_CASE("a disk without room is a disk error, and leaves nothing behind", "[io]") {
  const TempDir dir;
  const FileSizeLimit limit(100'000);
  const std::string message = message_of<DiskError>([&] {
    SafetensorsWriter(dir.file("x"), {{"w", DType::kU8, {200'000}}});
  });
  CHECK(contains(message, dir.file("x")));
  CHECK(contains(message, "errno 27"));  // errno 27 is EFBIG
  CHECK(names_in(dir).empty());
}

TEST_CASE("a write that fails is a disk error, and leaves nothing behind", "[io]") {
  const TempDir dir;
  {
    SafetensorsWriter writer(dir.file("x"), {{"w", DType::kU8, {200'000}}});
    // From here on, writes beyond 100,000 bytes fail, although space is reserved.
    const FileSizeLimit limit(100'000);
    CHECK_THROWS_AS(writer.write(filled(200'000, 1)), DiskError);
  }
  CHECK(names_in(dir).empty());
}

TEST_CASE("a folder that is not there is a disk error with its path", "[io]") {
  const TempDir dir;
  const std::string path = dir.file("absent/x");
  CHECK(contains(message_of<DiskError>([&] { SafetensorsWriter(path, {}); }), path));
  dir.write("file", "not a folder");
  CHECK_THROWS_AS(SafetensorsWriter(dir.file("file/x"), {}), DiskError);
  CHECK_THROWS_AS(SafetensorsFolderWriter(dir.file("file/folder"), {}), DiskError);
  fs::create_directory(dir.file("folder"));
  SafetensorsWriter onto_folder(dir.file("folder"), {});
  CHECK_THROWS_AS(onto_folder.commit(), DiskError);
}

TEST_CASE("above the limit a model is several files with an index", "[io]") {
  const TempDir dir;
  const std::vector<SafetensorsSpec> specs = {{"a", DType::kU8, {60}}, {"b", DType::kU8, {40}},
                                              {"c", DType::kU8, {1}},  {"d", DType::kU8, {150}},
                                              {"e", DType::kU8, {0}},  {"f", DType::kU8, {100}}};
  SafetensorsFolderWriter writer(dir.path(), specs, {.metadata = {}, .max_shard_bytes = 100});
  int value = 0;
  while (writer.current() != nullptr) {
    writer.write(filled(writer.current()->bytes(), ++value));
  }
  CHECK(value == 5);
  writer.commit();
  CHECK(names_in(dir) == std::vector<std::string>{
                             "model-00001-of-00004.safetensors", "model-00002-of-00004.safetensors",
                             "model-00003-of-00004.safetensors", "model-00004-of-00004.safetensors",
                             "model.safetensors.index.json"});
  const SafetensorsFolder folder(dir.path());
  REQUIRE(folder.tensors().size() == 6);
  value = 0;
  for (const char* name : {"a", "b", "c", "d", "f"}) {
    const auto bytes = folder.find(name)->bytes();
    CHECK(bytes.front() == static_cast<std::byte>(++value));
    CHECK(bytes.back() == static_cast<std::byte>(value));
  }
  CHECK(contains(test::read_file(dir.file("model.safetensors.index.json")), "\"total_size\": 351"));
}

TEST_CASE("a model written again in another number of files is read as written last", "[io]") {
  const TempDir dir;
  const auto write = [&](int64_t limit, int value) {
    SafetensorsFolderWriter writer(dir.path(), {{"a", DType::kU8, {4}}, {"b", DType::kU8, {4}}},
                                   {.metadata = {}, .max_shard_bytes = limit});
    writer.write(filled(4, value));
    CHECK_THROWS_AS(writer.commit(), InternalError);
    writer.write(filled(4, value));
    writer.commit();
    const SafetensorsFolder folder(dir.path());
    return std::to_integer<int>(folder.find("b")->bytes()[0]);
  };
  CHECK(write(100, 1) == 1);
  CHECK(write(5, 2) == 2);
  CHECK(write(100, 3) == 3);
  CHECK_FALSE(fs::exists(dir.file("model.safetensors.index.json")));
}

TEST_CASE(
    "after a model is written again its folder has what the index names, and what is not ours",
    "[io]") {
  const TempDir dir;
  const std::vector<std::string> others = {
      "config.json",          "model-00001-of-00002.safetensors.bak", "model-1-of-2.safetensors",
      "model-0001-of-02.bin", "other-00003-of-00005.safetensors",     "tokenizer.json"};
  for (const std::string& name : others) dir.write(name, name);
  const auto write = [&](int64_t files, int value) {
    std::vector<SafetensorsSpec> specs;
    for (int i = 0; i < 6; ++i) specs.push_back({cat("w", i), DType::kU8, {60}});
    SafetensorsFolderWriter writer(dir.path(), specs,
                                   {.metadata = {}, .max_shard_bytes = 60 * (6 / files)});
    for (int i = 0; i < 6; ++i) writer.write(filled(60, value));
    writer.commit();
  };
  int value = 0;
  // The same folder is written again and again, with more, fewer or equally many files.
  for (const int64_t files : {6, 2, 3, 3, 1, 1, 6}) {
    CAPTURE(files, value);
    write(files, ++value);
    std::vector<std::string> want = others;
    for (int64_t i = 0; i < files; ++i) {
      want.push_back(safetensors_file_name(static_cast<size_t>(i), static_cast<size_t>(files)));
    }
    if (files > 1) want.push_back(kSafetensorsIndexFile);
    std::sort(want.begin(), want.end());
    CHECK(names_in(dir) == want);
    for (const std::string& name : others) CHECK(test::read_file(dir.file(name)) == name);
    const SafetensorsFolder folder(dir.path());
    CHECK(folder.tensors().size() == 6);
    for (const auto& [name, tensor] : folder.tensors()) {
      CHECK(tensor.bytes()[0] == static_cast<std::byte>(value));
    }
  }
}

TEST_CASE("names of one of several files are those that the writer gives", "[io]") {
  for (const size_t count : {2, 5, 99'999, 123'456}) {
    CHECK(is_safetensors_part_name(safetensors_file_name(0, count)));
    CHECK(is_safetensors_part_name(safetensors_file_name(count - 1, count)));
  }
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00001.safetensors",
        "model-00000-of-00002.safetensors", "model-00003-of-00002.safetensors",
        "model-1-of-2.safetensors", "model-00001-of-00002.bin", "model-00001-of-.safetensors",
        "model--of-00002.safetensors", "model-00001-of-00002.safetensors.index.json",
        "model-1e0-of-00002.safetensors", ".model-00001-of-00002.safetensors.tmp-1-0", ""}) {
    CAPTURE(name);
    CHECK_FALSE(is_safetensors_part_name(name));
  }
}

TEST_CASE("a file written atomically appears whole", "[io]") {
  const TempDir dir;
  write_file_atomically(dir.file("x"), "first, a longer text");
  write_file_atomically(dir.file("x"), "second");
  CHECK(test::read_file(dir.file("x")) == "second");
  write_file_atomically(dir.file("empty"), "");
  CHECK(test::read_file(dir.file("empty")).empty());
  CHECK(names_in(dir) == std::vector<std::string>{"empty", "x"});
}

}  // namespace shale

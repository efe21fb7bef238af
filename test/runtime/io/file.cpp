#include "shale/runtime/io/file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

namespace fs = std::filesystem;

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

}  // namespace

TEST_CASE("a file is written at any offset and read back", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  File file = File::create(folder, "x");
  file.reserve(100);
  file.write_at(6, bytes_of("world"));
  file.write_at(0, bytes_of("hello "));
  file.resize(11);
  file.sync();
  file.close();
  CHECK_FALSE(file.is_open());
  File again = File::open(folder, "x");
  CHECK(again.bytes() == 11);
  std::string text(5, '\0');
  again.read_at(4, std::as_writable_bytes(std::span(text)));
  CHECK(text == "o wor");
  CHECK(contains(
      message_of<DataError>([&] { again.read_at(8, std::as_writable_bytes(std::span(text))); }),
      "ends at byte 11, expected 2 more bytes"));
}

TEST_CASE("a new file follows no link and replaces nothing", "[io]") {
  const TempDir dir;
  dir.write("there", "kept");
  fs::create_symlink(dir.file("absent"), dir.file("link"));
  const Folder folder = Folder::open(dir.path());
  for (const char* name : {"there", "link"}) {
    const std::string message = message_of<DiskError>([&] { File::create(folder, name); });
    CHECK(contains(message, dir.file(name)));
    CHECK(contains(message, "errno 17"));  // errno 17 is EEXIST
    CHECK_FALSE(File::try_create(dir.file(name), "x").has_value());
  }
  CHECK(test::read_file(dir.file("there")) == "kept");
  CHECK_FALSE(fs::exists(dir.file("absent")));
}

TEST_CASE("links, folders, pipes and nothing are no files", "[io]") {
  const TempDir dir;
  dir.write("file", "x");
  fs::create_symlink("file", dir.file("link"));
  fs::create_directory(dir.file("folder"));
  REQUIRE(::mkfifo(dir.file("pipe").c_str(), 0600) == 0);
  const Folder folder = Folder::open(dir.path());
  CHECK_NOTHROW(File::open(folder, "file"));
  for (const char* name : {"link", "folder", "pipe"}) {
    CHECK(contains(message_of<DataError>([&] { File::open(folder, name); }), dir.file(name)));
  }
  CHECK_THROWS_AS(File::open(folder, "absent"), MissingInputError);
}

TEST_CASE("the path to a folder may be a link, names inside may not", "[io]") {
  const TempDir dir;
  fs::create_directories(dir.file("real/inside"));
  fs::create_directory_symlink("real", dir.file("link"));
  dir.write("file", "x");
  const Folder folder = Folder::open(dir.file("link"));
  CHECK(folder.names() == std::vector<std::string>{"inside"});
  CHECK_NOTHROW(folder.open_folder("inside"));
  const Folder top = Folder::open(dir.path());
  CHECK_THROWS_AS(top.open_folder("link"), DataError);
  CHECK_THROWS_AS(top.open_folder("file"), DataError);
  CHECK_THROWS_AS(Folder::open(dir.file("file")), DataError);
  CHECK_THROWS_AS(Folder::open(dir.file("absent")), MissingInputError);
}

TEST_CASE("folders are made with those above them, once or again", "[io]") {
  const TempDir dir;
  for (const char* path : {"a/b/c", "a/b/c", "a/b/d/", "a"}) Folder::make(dir.file(path));
  CHECK(fs::is_directory(dir.file("a/b/c")));
  CHECK(fs::is_directory(dir.file("a/b/d")));
  dir.write("file", "x");
  CHECK_THROWS_AS(Folder::make(dir.file("file/a")), DiskError);
  CHECK_THROWS_AS(Folder::open(dir.path()).make_folder("a"), DiskError);
}

TEST_CASE("names are listed, renamed and removed", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  for (const char* name : {"b", "c", "a"}) dir.write(name, name);
  CHECK(folder.names() == std::vector<std::string>{"a", "b", "c"});
  folder.rename("a", "c");
  CHECK(test::read_file(dir.file("c")) == "a");
  CHECK_FALSE(folder.has("a"));
  folder.remove_file("b");
  CHECK(folder.names() == std::vector<std::string>{"c"});
  CHECK_NOTHROW(folder.sync());
  CHECK(contains(message_of<DiskError>([&] { folder.rename("absent", "x"); }), "absent"));
  CHECK_THROWS_AS(folder.remove_file("absent"), DiskError);
}

TEST_CASE("a folder is removed with what is in it, and not with what its links lead to", "[io]") {
  const TempDir dir;
  fs::create_directories(dir.file("kept"));
  dir.write("kept/file", "kept");
  fs::create_directories(dir.file("gone/deep/deeper"));
  dir.write("gone/deep/file", "x");
  fs::create_directory_symlink(dir.file("kept"), dir.file("gone/deep/link"));
  const Folder folder = Folder::open(dir.path());
  folder.remove_all("gone");
  CHECK(folder.names() == std::vector<std::string>{"kept"});
  CHECK(test::read_file(dir.file("kept/file")) == "kept");
  CHECK_THROWS_AS(folder.remove_all("absent"), DiskError);
}

TEST_CASE("a plain file name cannot lead out of its folder", "[io]") {
  for (const char* name : {"a", "model-00001-of-00002.safetensors", "A_z.9"}) {
    CHECK(is_plain_file_name(name));
  }
  for (const char* name : {"", ".", "..", ".hidden", "a/b", "/a", "a b", "a\\b", "\xc3\xa9"}) {
    CHECK_FALSE(is_plain_file_name(name));
  }
  CHECK_FALSE(is_plain_file_name(std::string_view("a\0b", 3)));
}

}  // namespace shale

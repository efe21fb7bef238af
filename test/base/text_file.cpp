#include "shale/base/text_file.h"

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;

TEST_CASE("read_text_file reads up to the limit and names what is wrong", "[base]") {
  const test::TempDir dir;
  const std::string path = dir.write("a.txt", "12345");
  CHECK(read_text_file(path, 5) == "12345");
  CHECK(contains(message_of<DataError>([&] { read_text_file(path, 4); }),
                 path + ": larger than 4 bytes"));
  CHECK(read_text_file(dir.write("empty", ""), 0).empty());
  const std::string absent = dir.file("absent");
  CHECK(contains(message_of<MissingInputError>([&] { read_text_file(absent, 5); }), absent));
  CHECK(contains(message_of<DataError>([&] { read_text_file(dir.path(), 5); }), "directory"));
  CHECK(contains(message_of<DataError>([] { read_text_file("/dev/zero", 1000); }), "larger than"));
}

}  // namespace shale

#include "shale/models/training/report/samples_file.h"

#include <sys/stat.h>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::models {

TEST_CASE("samples are kept over a restart, each once", "[samples_file]") {
  const test::TempDir dir;
  const std::string path = dir.file("samples.jsonl");
  CHECK(read_samples(path).empty());
  {
    SamplesFile file(path, 0);
    CHECK(file.write({2, "samples/end", "two\n\"lines\""}));
    CHECK(file.write({4, "samples/end", "four"}));
    CHECK(file.write({6, "samples/end", "six"}));
  }
  {
    SamplesFile file(path, 4);  // the run resumes after step 4
    CHECK(read_samples(path) ==
          std::vector<Sample>{{2, "samples/end", "two\n\"lines\""}, {4, "samples/end", "four"}});
    CHECK_FALSE(file.write({4, "samples/end", "four"}));
    CHECK(file.write({4, "samples/end", "another prompt"}));
  }
  CHECK(read_samples(path) == std::vector<Sample>{{2, "samples/end", "two\n\"lines\""},
                                                  {4, "samples/end", "another prompt"}});
}

TEST_CASE("a sample is appended, after what a killed run left", "[samples_file]") {
  const test::TempDir dir;
  const std::string path =
      dir.write("samples.jsonl", "{\"step\":2,\"tag\":\"a\",\"text\":\"two\"}\n{\"step\":3,\"ta");
  SamplesFile file(path, 2);
  const auto node = [&] {
    struct stat info {};
    REQUIRE(stat(path.c_str(), &info) == 0);
    return info.st_ino;
  };
  CHECK(file.write({3, "a", "three"}));
  const auto before = node();
  CHECK(file.write({3, "b", "also"}));
  CHECK(file.write({4, "a", "four"}));
  CHECK(node() == before);  // lines were appended: the file was not replaced by a new one
  CHECK(
      read_samples(path) ==
      std::vector<Sample>{{2, "a", "two"}, {3, "a", "three"}, {3, "b", "also"}, {4, "a", "four"}});
}

TEST_CASE("a sample of any bytes is written once", "[samples_file]") {
  const test::TempDir dir;
  const std::string path = dir.file("samples.jsonl");
  const Sample sample{1, "samples/end", std::string("\x00\xff\x1b", 3)};
  CHECK(SamplesFile(path, 0).write(sample));
  CHECK_FALSE(SamplesFile(path, 1).write(sample));
  CHECK(read_samples(path).at(0).text == std::string("\x00\xef\xbf\xbd\x1b", 5));
}

TEST_CASE("a line that is no sample is named", "[samples_file]") {
  const test::TempDir dir;
  const std::string path = dir.file("samples.jsonl");
  dir.write("samples.jsonl",
            "{\"step\": 1, \"tag\": \"a\", \"text\": \"b\"}\n{\"step\": 2}\n{\"st");
  CHECK_THROWS_WITH(read_samples(path), Catch::Contains("samples.jsonl:2"));
}

}  // namespace shale::models

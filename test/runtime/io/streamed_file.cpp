#include "shale/runtime/io/streamed_file.h"

#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/file_size_limit.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::FileSizeLimit;
using test::message_of;
using test::TempDir;

namespace {

std::vector<std::byte> some_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 31 + i / 4096);
  return bytes;
}

std::vector<std::byte> content(const std::string& path) {
  const std::string text = test::read_file(path);
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

TEST_CASE("a streamed file has what was appended, in pieces and blocks of any size", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  int64_t different = 0, files = 0;
  // Sizes around multiples of the alignment of direct I/O and of the block size.
  for (const size_t size : {0, 1, 4095, 4096, 4097, 8192, 12'288, 20'000, 65'536, 100'001}) {
    for (const size_t block : {4096, 8192, 1 << 20}) {
      for (const size_t piece : {7, 4096, 5000, 1'000'000}) {
        const std::string name = std::to_string(files++);
        const std::vector<std::byte> bytes = some_bytes(size);
        StreamedFile file(folder, name, static_cast<int64_t>(size), block);
        for (size_t done = 0; done < size; done += piece) {
          file.append(std::span(bytes).subspan(done, std::min(piece, size - done)));
        }
        file.finish();
        different += content(folder.path_of(name)) == bytes ? 0 : 1;
      }
    }
  }
  CHECK(different == 0);
}

TEST_CASE("a block that cannot be written is a disk error of a later call", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  const std::vector<std::byte> bytes = some_bytes(100'000);
  const std::string message = message_of<DiskError>([&] {
    StreamedFile file(folder, "x", 100'000, 8192);
    // From here on, writes beyond 50,000 bytes fail, although space is reserved.
    const FileSizeLimit limit(50'000);
    file.append(bytes);
    file.finish();
  });
  CHECK(contains(message, folder.path_of("x")));
  CHECK(contains(message, "errno 27"));  // errno 27 is EFBIG
}

TEST_CASE("a streamed file that is given up stops and leaves a part", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  const std::vector<std::byte> bytes = some_bytes(10'000);
  {
    StreamedFile file(folder, "x", 100'000, 4096);
    file.append(bytes);
  }
  const std::vector<std::byte> found = content(folder.path_of("x"));
  CHECK(std::equal(bytes.begin(), bytes.begin() + 8192, found.begin()));
}

TEST_CASE("a streamed file needs a new name, room on the disk, and blocks that fit it", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  dir.write("there", "x");
  CHECK_THROWS_AS(StreamedFile(folder, "there", 10), DiskError);
  CHECK_THROWS_AS(StreamedFile(folder, "a", 10, 5000), InternalError);
  CHECK_THROWS_AS(StreamedFile(folder, "b", 10, 0), InternalError);
  const FileSizeLimit limit(100'000);
  CHECK_THROWS_AS(StreamedFile(folder, "c", 200'000), DiskError);
}

TEST_CASE("what cannot bypass the cache goes through it", "[io]") {
  const TempDir dir;
  const Folder folder = Folder::open(dir.path());
  const std::vector<std::byte> bytes = some_bytes(10'001);
  const std::span<const std::byte> unaligned = std::span(bytes).subspan(1);
  File file = File::create(folder, "x");
  file.bypass_cache(true);
  file.write_at(3, unaligned);
  file.close();
  File again = File::open(folder, "x");
  again.bypass_cache(true);
  std::vector<std::byte> found(unaligned.size());
  again.read_at(3, found);
  CHECK(std::equal(found.begin(), found.end(), unaligned.begin(), unaligned.end()));
  // The file has 1000 bytes from there on.
  CHECK_NOTHROW(again.read_at(9'003, std::span(found).first(5000), 1000));
  CHECK(std::equal(found.begin(), found.begin() + 1000, unaligned.begin() + 9000));
  CHECK_THROWS_AS(again.read_at(9'003, std::span(found).first(5000), 1001), DataError);
}

}  // namespace shale

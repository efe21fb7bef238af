#include "shale/runtime/io/async_file.h"

#include <fcntl.h>

#include <cstring>
#include <vector>

#include "shale/base/error.h"
#include "shale/runtime/io/direct_memory.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

FileHandle new_file(const TempDir& folder, int flags = O_DIRECT) {
  const int fd = open(folder.file("data").c_str(), O_RDWR | O_CREAT | flags, 0600);
  return FileHandle(fd);
}

// Returns the I/O methods that this machine supports.
std::vector<AsyncIo> ways() {
  std::vector<AsyncIo> all = {AsyncIo::kThreads};
  const TempDir folder;
  if (AsyncFile(new_file(folder), "probe").uses_io_uring()) all.push_back(AsyncIo::kIoUring);
  return all;
}

void fill(std::span<std::byte> bytes, unsigned seed) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((i * 2654435761U >> 7) + seed);
  }
}

}  // namespace

// Makes more requests than may be in flight; the last request is a single page.
TEST_CASE("what was written to an asynchronous file is read back, by io_uring and by threads") {
  constexpr size_t kBytes = (size_t{80} << 22) + kDirectAlignment;
  for (const AsyncIo way : ways()) {
    CAPTURE(int(way));
    const TempDir folder;
    AsyncFile file(new_file(folder), "data", way);
    CHECK(file.uses_io_uring() == (way == AsyncIo::kIoUring));
    const DirectMemory from = allocate_direct_memory(kBytes), to = allocate_direct_memory(kBytes);
    fill({from.get(), kBytes}, 1);
    const auto written = file.write(2 * kDirectAlignment, {from.get(), kBytes});
    file.wait(written);
    CHECK(file.done(written));
    // Two reads are in flight together; the read of the later range starts first.
    constexpr size_t kHalf = align_down(kBytes / 2);
    const auto second = file.read(2 * kDirectAlignment + kHalf, {to.get() + kHalf, kBytes - kHalf});
    const auto first = file.read(2 * kDirectAlignment, {to.get(), kHalf});
    file.wait(first);
    file.wait(second);
    CHECK(std::memcmp(from.get(), to.get(), kBytes) == 0);
  }
}

TEST_CASE("an asynchronous read beyond the file's end is an error of its ticket") {
  for (const AsyncIo way : ways()) {
    CAPTURE(int(way));
    const TempDir folder;
    AsyncFile file(new_file(folder), "data", way);
    const DirectMemory memory = allocate_direct_memory(2 * kDirectAlignment);
    file.wait(file.write(0, {memory.get(), kDirectAlignment}));
    const auto beyond = file.read(0, {memory.get(), 2 * kDirectAlignment});
    CHECK(contains(message_of<DiskError>([&] { file.wait(beyond); }), "data: read of"));
    file.wait(file.read(0, {memory.get(), kDirectAlignment}));  // later requests still work
  }
}

TEST_CASE("an asynchronous write that the system refuses names the file and the reason") {
  for (const AsyncIo way : ways()) {
    const TempDir folder;
    { const FileHandle made = new_file(folder); }
    AsyncFile file(FileHandle(open(folder.file("data").c_str(), O_RDONLY)), "data", way);
    const DirectMemory memory = allocate_direct_memory(kDirectAlignment);
    const auto ticket = file.write(0, {memory.get(), kDirectAlignment});
    const std::string message = message_of<DiskError>([&] { file.wait(ticket); });
    CHECK(contains(message, "data: write of 4096 bytes at 0: "));
    CHECK(contains(message, std::strerror(EBADF)));
  }
}

TEST_CASE("asynchronous files take whole pages") {
  const TempDir folder;
  AsyncFile file(new_file(folder), "data");
  const DirectMemory memory = allocate_direct_memory(2 * kDirectAlignment);
  CHECK_THROWS_AS(file.read(1, {memory.get(), kDirectAlignment}), InternalError);
  CHECK_THROWS_AS(file.read(0, {memory.get() + 1, kDirectAlignment}), InternalError);
  CHECK_THROWS_AS(file.read(0, {memory.get(), 100}), InternalError);
}

}  // namespace shale::test

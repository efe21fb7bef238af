#include <sys/mman.h>

#include <atomic>
#include <csetjmp>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "shale/base/error.h"
#include "shale/models/gpt2/hf.h"
#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/runtime/io/mapped_file.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/fixtures.h"
#include "shale/test/support/temp_dir.h"

namespace shale {

using test::contains;
using test::message_of;
using test::TempDir;

namespace {

constexpr size_t kPage = 4096;

size_t count_of(std::span<const std::byte> bytes, char wanted) {
  size_t count = 0;
  for (const std::byte byte : bytes) count += byte == static_cast<std::byte>(wanted) ? 1 : 0;
  return count;
}

}  // namespace

TEST_CASE("a file that shrinks while it is mapped reads as zeros, and says so", "[io]") {
  const TempDir dir;
  const std::string path = dir.write("x", std::string(10 * kPage, 'x'));
  const MappedFile file(path);
  CHECK(count_of(file.bytes(), 'x') == 10 * kPage);
  CHECK_NOTHROW(file.check());
  const size_t left = GENERATE(size_t{0}, 4 * kPage);
  std::filesystem::resize_file(path, left);
  CHECK(count_of(file.bytes(), 'x') == left);
  CHECK(contains(message_of<DataError>([&] { file.check(); }), path));
  // The fault does not affect another mapped file.
  const MappedFile other(dir.write("y", "text"));
  CHECK(other.text() == "text");
  CHECK_NOTHROW(other.check());
}

TEST_CASE("a file that is renamed, replaced, removed or grows is read as it was mapped", "[io]") {
  const TempDir dir;
  const std::string path = dir.write("x", std::string(3 * kPage + 7, 'x'));
  const MappedFile file(path);
  std::filesystem::resize_file(path, 9 * kPage);
  CHECK(count_of(file.bytes(), 'x') == 3 * kPage + 7);
  std::filesystem::rename(path, dir.file("y"));
  dir.write("x", "other");
  CHECK(count_of(file.bytes(), 'x') == 3 * kPage + 7);
  std::filesystem::remove(dir.file("y"));
  CHECK(count_of(file.bytes(), 'x') == file.bytes().size());
  CHECK_NOTHROW(file.check());
}

TEST_CASE("threads that meet a shrunk file at once all go on", "[io]") {
  const TempDir dir;
  const std::string path = dir.write("x", std::string(64 * kPage, 'x'));
  for (int round = 0; round < 20; ++round) {
    std::filesystem::resize_file(path, 64 * kPage);
    const MappedFile file(path);
    std::filesystem::resize_file(path, 0);
    std::vector<std::thread> threads;
    std::atomic<size_t> count = 0;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&] { count += count_of(file.bytes(), 'x'); });
    for (std::thread& thread : threads) thread.join();
    CHECK(count == 0);
    CHECK_THROWS_AS(file.check(), DataError);
  }
}

TEST_CASE("training data that shrinks is a data error with its name", "[io][data]") {
  const TempDir dir;
  const auto text = dir.write("x.txt", std::string(20 * kPage, 'x'));
  const auto tokens = dir.write("x.bin", std::string(20 * kPage, '\1'));
  const size_t left = GENERATE(size_t{0}, 10 * kPage);
  for (const std::string& path : {text, tokens}) {
    const bool is_text = path == text;
    const auto stream = open_dataset({.path = path,
                                      .format = is_text ? DataFormat::kText : DataFormat::kNanogpt,
                                      .val_fraction = 0})
                            .train;
    std::filesystem::resize_file(path, left);
    std::vector<int32_t> out(static_cast<size_t>(stream->size()));
    CHECK(contains(message_of<DataError>([&] { stream->read(0, out); }), path));
  }
}

// The text ends earlier in its last page, but no page is missing: the system fills the page with
// zeros.
TEST_CASE("a text that shrinks within its last page is a data error", "[io][data]") {
  const TempDir dir;
  const std::string path = dir.write("x.txt", std::string(1000, 'x'));
  const auto stream = open_dataset({.path = path, .val_fraction = 0}).train;
  std::filesystem::resize_file(path, 900);
  std::vector<int32_t> out(1000);
  CHECK(contains(message_of<DataError>([&] { stream->read(0, out); }), "x.txt: byte 0"));
}

TEST_CASE("weights that shrink while they are read are a data error", "[io]") {
  const TempDir dir;
  namespace fs = std::filesystem;
  fs::copy(test::fixture_path("gpt2/hf_tiny"), dir.file("model"));
  const HfGpt2Config config = load_gpt2_config(dir.file("model"));
  const Gpt2Weights weights(dir.file("model"), config);
  for (const auto& entry : fs::directory_iterator(dir.file("model"))) {
    if (entry.path().extension() == ".safetensors") fs::resize_file(entry.path(), 0);
  }
  std::vector<float> values(static_cast<size_t>(config.context * config.width));
  CHECK_THROWS_AS(
      weights.read("wpe.weight", make_view(values.data(), {config.context, config.width})),
      DataError);
}

namespace {

sigjmp_buf after_fault;
void leave(int) {
  siglongjmp(after_fault, 1);
}

}  // namespace

// This test runs last, because it changes the signal handler.
TEST_CASE("faults elsewhere, and signals that somebody sent, go to the handler before", "[io]") {
  const TempDir dir;
  struct sigaction mine {
  }, saved{};
  mine.sa_handler = leave;
  sigaction(SIGBUS, &mine, &saved);
  const MappedFile file(dir.write("x", std::string(kPage, 'x')));
  const bool sent = GENERATE(true, false);
  volatile int handled = 0;
  if (sigsetjmp(after_fault, 1) == 0) {
    if (sent) {
      raise(SIGBUS);
    } else {
      // Accessing this empty file's page raises SIGBUS.
      const int fd = memfd_create("empty", MFD_CLOEXEC);
      auto* const nothing =
          static_cast<volatile char*>(mmap(nullptr, kPage, PROT_READ, MAP_SHARED, fd, 0));
      static_cast<void>(*nothing);
    }
  } else {
    handled = 1;
  }
  CHECK(handled == 1);
  CHECK_NOTHROW(file.check());
  sigaction(SIGBUS, &saved, nullptr);
}

}  // namespace shale

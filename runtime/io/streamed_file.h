#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>

#include "shale/runtime/io/direct_memory.h"
#include "shale/runtime/io/file.h"

namespace shale {

// A new, large file that is written from begin to end at the disk's speed: what is appended is
// collected into blocks, and while one is being filled the one before goes to the disk, past the
// system's cache where the file system can do that (File::bypass_cache). So writing takes the
// time of the disk, and of the processor little more than the copy to the block.
//
// Throws DiskError as File does; an error of a block may come with a later call.
class StreamedFile {
 public:
  // Makes the file `name`, and reserves room for `bytes` on the disk. `block_bytes`: a multiple of
  // kDirectAlignment; larger ones are faster, up to some megabytes.
  StreamedFile(const Folder& folder, const std::string& name, int64_t bytes,
               size_t block_bytes = size_t{8} << 20);
  ~StreamedFile();  // waits for the blocks on their way; the rest is not written
  StreamedFile(const StreamedFile&) = delete;
  StreamedFile& operator=(const StreamedFile&) = delete;

  const std::string& path() const { return file_.path(); }

  void append(std::span<const std::byte> bytes);
  // Writes the rest, syncs and closes the file.
  void finish();

 private:
  static constexpr size_t kBlocks = 3;  // one is being filled, the others are on their way
  struct Block {
    DirectMemory memory;
    std::future<void> written;
  };

  Block& filling() { return blocks_[block_ % kBlocks]; }
  void write_block();

  File file_;
  size_t block_bytes_;
  std::array<Block, kBlocks> blocks_;
  size_t block_ = 0;   // of the file: the one that is being filled
  size_t filled_ = 0;  // bytes of it
};

}  // namespace shale

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

// A new, large file that is written sequentially at the disk's speed. Appended data is collected
// into blocks; while one is filled, the previous one is written, with direct I/O if the file system
// supports it (File::bypass_cache). The CPU does little more than copy data into blocks.
//
// Throws DiskError as File does; a later call may report the error of a block.
class StreamedFile {
 public:
  // Creates the file `name` and reserves `bytes` on the disk. block_bytes: a multiple of
  // kDirectAlignment; larger blocks are faster, up to some megabytes.
  StreamedFile(const Folder& folder, const std::string& name, int64_t bytes,
               size_t block_bytes = size_t{8} << 20);
  ~StreamedFile();  // waits for blocks being written; does not write a partial block
  StreamedFile(const StreamedFile&) = delete;
  StreamedFile& operator=(const StreamedFile&) = delete;

  const std::string& path() const { return file_.path(); }

  void append(std::span<const std::byte> bytes);
  // Writes the last block, syncs and closes the file.
  void finish();

 private:
  static constexpr size_t kBlocks = 3;  // number of blocks: one is filled while two are written
  struct Block {
    DirectMemory memory;
    std::future<void> written;
  };

  Block& filling() { return blocks_[block_ % kBlocks]; }
  void write_block();

  File file_;
  size_t block_bytes_;
  std::array<Block, kBlocks> blocks_;
  size_t block_ = 0;   // index in the file of the block that is being filled
  size_t filled_ = 0;  // number of bytes in the block that is being filled
};

}  // namespace shale

#include "shale/runtime/io/streamed_file.h"

#include <algorithm>
#include <cstring>

#include "shale/base/error.h"

namespace shale {

StreamedFile::StreamedFile(const Folder& folder, const std::string& name, int64_t bytes,
                           size_t block_bytes)
    : file_(File::create(folder, name)), block_bytes_(block_bytes) {
  if (block_bytes == 0 || block_bytes % kDirectAlignment != 0) {
    throw InternalError(cat(file_.path(), ": blocks of ", block_bytes,
                            " bytes, expected a multiple of ", kDirectAlignment));
  }
  file_.reserve(bytes);
  file_.bypass_cache(true);
  // A small file needs only small blocks.
  block_bytes_ = std::min(block_bytes, align_up(static_cast<size_t>(std::max<int64_t>(bytes, 1))));
}

StreamedFile::~StreamedFile() {
  for (Block& block : blocks_) {
    if (block.written.valid()) block.written.wait();
  }
}

void StreamedFile::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    Block& block = filling();
    if (block.written.valid()) block.written.get();
    if (block.memory == nullptr) block.memory = allocate_direct_memory(block_bytes_);
    const size_t count = std::min(bytes.size(), block_bytes_ - filled_);
    std::memcpy(block.memory.get() + filled_, bytes.data(), count);
    filled_ += count;
    bytes = bytes.subspan(count);
    if (filled_ == block_bytes_) write_block();
  }
}

void StreamedFile::write_block() {
  const auto offset = static_cast<int64_t>(block_ * block_bytes_);
  filling().written =
      std::async(std::launch::async, [this, offset, memory = filling().memory.get()] {
        file_.write_at(offset, {memory, block_bytes_});
      });
  ++block_;
  filled_ = 0;
}

void StreamedFile::finish() {
  for (Block& block : blocks_) {
    if (block.written.valid()) block.written.get();
  }
  const auto offset = static_cast<int64_t>(block_ * block_bytes_);
  const size_t aligned = align_down(filled_);
  const std::span<const std::byte> rest(filling().memory.get(), filled_);
  file_.write_at(offset, rest.first(aligned));
  file_.bypass_cache(false);
  file_.write_at(offset + static_cast<int64_t>(aligned), rest.subspan(aligned));
  file_.sync();
  file_.close();
}

}  // namespace shale

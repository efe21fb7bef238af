#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "shale/kernels/simt/engine/mapping.h"
#include "shale/kernels/simt/engine/shared_memory.h"

namespace shale::emulator {

// The tracker's state of each byte of a block's shared memory. The bytes of a chunk share one cell
// if they have always been accessed together, as by copies and tensor cores.
class Shadow {
 public:
  // Lanes of one warp that have read a byte at the same time of their clocks.
  struct Readers {
    uint32_t time, lanes;
  };
  // State of a byte. Zero: no access yet.
  struct Cell {
    uint32_t write_epoch, write_time;
    uint32_t read_epoch;
    Readers readers[2];
    uint16_t writer;
    uint16_t reader_warp[2];  // an engine counts as a warp with one lane
    uint8_t state;            // bits kAtomicWrite, kInFlight, kAsyncWrite
    uint8_t unused;           // fills the padding: cells are compared as bytes
  };
  static constexpr uint8_t kAtomicWrite = 1, kInFlight = 2, kAsyncWrite = 4;

  bool empty() const { return chunks_.data() == nullptr; }
  void clear() {
    chunks_ = Mapping(SharedMemory::kBytes / kChunk * sizeof(Chunk));
    cells_ = Mapping(SharedMemory::kBytes * sizeof(Cell));
  }

  // Calls look(cell, offset of its first byte) for bytes [offset, offset + bytes), once per group
  // of bytes with the same history. look() updates the group's cell.
  template <class Look>
  void visit(uint32_t offset, uint32_t bytes, const Look& look) {
    for (const uint32_t end = offset + bytes; offset < end;) {
      const uint32_t here = std::min(end - offset, kChunk - offset % kChunk);
      Chunk& chunk = reinterpret_cast<Chunk*>(chunks_.data())[offset / kChunk];
      if (here == kChunk && !chunk.split) {
        look(chunk.cell, offset);
      } else {
        visit_bytes(chunk, offset, here, look);
      }
      offset += here;
    }
  }

 private:
  static constexpr uint32_t kChunk = 16;  // bytes; size of most accesses by tensor cores and copies
  struct Chunk {
    Cell cell;
    bool split;  // true: each byte has its own cell in cells_
  };

  static bool same(const Cell& a, const Cell& b) { return std::memcmp(&a, &b, sizeof(Cell)) == 0; }

  template <class Look>
  void visit_bytes(Chunk& chunk, uint32_t offset, uint32_t bytes, const Look& look) {
    Cell* const cells = reinterpret_cast<Cell*>(cells_.data()) + offset;
    if (!chunk.split) std::fill_n(cells - offset % kChunk, kChunk, chunk.cell);
    chunk.split = true;
    const Cell before = cells[0];
    look(cells[0], offset);
    bool alike = true;
    for (uint32_t i = 1; i < bytes; ++i) {
      if (same(cells[i], before)) {
        cells[i] = cells[0];
      } else {
        look(cells[i], offset + i);
        alike = alike && same(cells[i], cells[0]);
      }
    }
    if (bytes == kChunk && alike) chunk = {cells[0], false};
  }

  Mapping chunks_{}, cells_{};  // cells_ has the cells of split chunks
};

}  // namespace shale::emulator

#include "shale/kernels/simt/engine/global_access.h"

#include <link.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "shale/base/text.h"
#include "shale/kernels/simt/engine/block.h"
#include "shale/kernels/simt/engine/report.h"

namespace shale::emulator {
namespace {

// Fields of a cell, from its lowest bit: the block that has read the element in this launch; the
// block that has written it; the writer's epoch; kAtomicCell if the write was atomic; kWrittenCell;
// the launch number. Blocks are numbered from 1.
constexpr int kBlockBits = 18, kEpochBits = 10;
constexpr int kWriterShift = kBlockBits, kEpochShift = 2 * kBlockBits;
constexpr uint32_t kMany = (1u << kBlockBits) - 1;  // block number that stands for several blocks
constexpr uint32_t kMaxEpoch = (1u << kEpochBits) - 1;
constexpr GlobalCell kAtomicCell = GlobalCell{1} << (kEpochShift + kEpochBits);
static_assert(kAtomicCell << 1 == kWrittenCell && kWrittenCell << 1 == GlobalCell{1}
                                                                           << kLaunchShift);

uint32_t field(GlobalCell cell, int shift, uint32_t mask) {
  return static_cast<uint32_t>(cell >> shift) & mask;
}

struct Constants {
  const std::byte* p;
  std::span<const std::byte> found{};
};

// Callback of dl_iterate_phdr. Finds the read-only segment that contains p, in the program or in a
// library; such a segment holds constants.
int look_into(dl_phdr_info* info, size_t, void* argument) {
  auto& constants = *static_cast<Constants*>(argument);
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    const bool read_only =
        header.p_type == PT_GNU_RELRO || (header.p_type == PT_LOAD && (header.p_flags & PF_W) == 0);
    const auto* begin = reinterpret_cast<const std::byte*>(info->dlpi_addr + header.p_vaddr);
    if (!read_only || static_cast<size_t>(constants.p - begin) >= header.p_memsz) continue;
    constants.found = {begin, header.p_memsz};
    return 1;
  }
  return 0;
}

std::span<const std::byte> constants_at(const void* p) {
  Constants constants{static_cast<const std::byte*>(p)};
  dl_iterate_phdr(look_into, &constants);
  return constants.found;
}

}  // namespace

void GlobalAccess::begin_block(GlobalLaunch* launch, uint64_t block, uint64_t blocks, bool track) {
  launch_ = launch;
  if (launch == nullptr) return;
  if (table_ != launch->table || number_ != launch->number) {
    table_ = launch->table;
    number_ = launch->number;
    lines_.fill({});
  }
  stacks_ = {.begin = block_.stacks().data(), .bytes = block_.stacks().size()};
  tracks_ = track && has_instrumented_kernels();
  me_ = static_cast<uint32_t>(block % (kMany - 1)) + 1;
  blocks_ = static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX));
  read_.clear();
  seen_.clear();
  begin_epoch(0);
}

// ---- Bounds ----

void GlobalAccess::access(const void* p, size_t bytes, Access kind) {
  if (!on()) return;
  const Line& line = line_of(p);
  if (!line.is_global || !line.has(p, bytes)) {
    if (!find_allocation(p, bytes, kind, nullptr)) report_outside(p, bytes, kind, nullptr);
    return;
  }
  if (line.cells != nullptr && tracks_) track(line, p, bytes, kind, nullptr);
}

bool GlobalAccess::find_allocation(const void* p, size_t bytes, Access kind,
                                   const void* instruction) {
  const GlobalRange* range = find_range(*table_, p);
  if (range == nullptr) return false;
  Line& line = line_of(p);
  line = {range->begin, range->bytes, range->cells(), range->element_shift, true};
  if (!line.has(p, bytes)) report_outside(p, bytes, kind, instruction);
  if (line.cells != nullptr && tracks_) track(line, p, bytes, kind, instruction);
  return true;
}

void GlobalAccess::look_up(const void* p, size_t bytes, Access kind, const void* instruction) {
  if (find_allocation(p, bytes, kind, instruction)) return;
  std::span<const std::byte> other = block_.held(p);
  if (other.empty() && kind == Access::kRead) other = constants_at(p);
  if (other.empty()) report_outside(p, bytes, kind, instruction);
  line_of(p) = {.begin = other.data(), .bytes = other.size()};
}

// Position of p such as "64 bytes into an allocation of 256 bytes".
std::string GlobalAccess::place(const void* p) const {
  constexpr ptrdiff_t kNear = 1 << 16;
  const auto* byte = static_cast<const std::byte*>(p);
  std::string nearest = "in no allocation";
  ptrdiff_t distance = kNear;
  for (const GlobalRange& range : *table_) {
    const ptrdiff_t into = byte - range.begin, behind = into - static_cast<ptrdiff_t>(range.bytes);
    const std::string allocation = cat(" an allocation of ", range.bytes, " bytes");
    if (into >= 0 && behind < 0) return cat(into, " bytes into", allocation);
    if (behind >= 0 && behind < distance) {
      distance = behind;
      nearest = cat(behind, " bytes behind the end of", allocation);
    } else if (into < 0 && -into < distance) {
      distance = -into;
      nearest = cat(-into, " bytes before", allocation);
    }
  }
  return nearest;
}

void GlobalAccess::report_outside(const void* p, size_t bytes, Access kind,
                                  const void* instruction) {
  char address[32];
  std::snprintf(address, sizeof(address), "%p", p);
  std::string text = cat("this thread ", verb(kind), " ", bytes, " bytes of global memory at ",
                         address, ", ", place(p));
  report(Fault::kOutOfBounds, std::move(text), instruction);
}

void GlobalAccess::report(Fault fault, std::string&& what, const void* instruction) {
  std::string text = std::exchange(what, {});
  if (instruction != nullptr) {
    text += cat(" (instruction ", describe_instruction(instruction), ")");
  }
  block_.fail(fault, std::move(text));
}

// ---- Conflicts, and reads of unwritten memory ----

bool GlobalAccess::ordered(uint32_t other, uint32_t epoch) const {
  if (other == kMany) return blocks_ > 1 && seen_.size() == blocks_ - 1;
  const auto found = seen_.find(other);
  return found != seen_.end() && found->second > epoch;
}

GlobalAccess::Step GlobalAccess::step(GlobalCell cell, Access kind) const {
  const bool is_atomic = kind == Access::kAtomic;
  Step result;
  if (kind != Access::kWrite && (cell & kWrittenCell) == 0) {
    result.finding = Finding::kUnwritten;
  }
  const GlobalCell launch = GlobalCell{launch_->number} << kLaunchShift;
  const GlobalCell mine =
      is_atomic ? written_by_me_ | kAtomicCell : written_by_me_;  // includes the launch number
  if (cell >> kLaunchShift != launch_->number) {                  // first access in this launch
    result.after = kind == Access::kRead ? launch | (cell & kWrittenCell) | me_ : mine;
    return result;
  }
  const uint32_t reader = field(cell, 0, kMany), writer = field(cell, kWriterShift, kMany);
  const bool was_atomic = (cell & kAtomicCell) != 0, foreign = writer != 0 && writer != me_;
  if (foreign && !(was_atomic && is_atomic) &&
      !ordered(writer, field(cell, kEpochShift, kMaxEpoch))) {
    result.finding = was_atomic ? Finding::kChanged : Finding::kWritten;
    result.other = writer;
  } else if (kind != Access::kRead && reader != 0 && reader != me_ && !ordered(reader, 0)) {
    result.finding = Finding::kRead;
    result.other = reader;
  }
  if (kind == Access::kRead) {
    result.after = (cell & ~GlobalCell{kMany}) | (reader == 0 || reader == me_ ? me_ : kMany);
  } else if (!is_atomic) {
    // Whatever is ordered after this plain write is also ordered after all accesses before the
    // write, so the cell keeps only the write.
    result.after = mine;
  } else {
    // If the last write is this block's own plain write, the cell keeps it rather than the atomic
    // write.
    const bool is_plain = writer == me_ && !was_atomic;
    result.after = (is_plain ? written_by_me_ : mine) | reader;
    if (was_atomic && foreign) result.after |= GlobalCell{kMany} << kWriterShift;
  }
  return result;
}

// Updates the cells of an access. Returns the first step with an error, or the last step.
// Neighbouring cells mostly have the same history, so their step is computed once. If blocks run at
// the same time, the first cell decides which block came first.
GlobalAccess::Step GlobalAccess::change_cells(GlobalCell* cells, size_t count, Access kind) const {
  const std::atomic_ref<GlobalCell> first(cells[0]);
  GlobalCell was = first.load(std::memory_order_relaxed);
  Step last = step(was, kind);
  while (last.finding == Finding::kNone && last.after != was) {
    if (!launch_->several_workers) {
      first.store(last.after, std::memory_order_relaxed);
      break;
    }
    if (first.compare_exchange_weak(was, last.after, std::memory_order_relaxed)) break;
    last = step(was, kind);
  }
  for (size_t i = 1; i < count && last.finding == Finding::kNone; ++i) {
    const std::atomic_ref<GlobalCell> other(cells[i]);
    const GlobalCell cell = other.load(std::memory_order_relaxed);
    if (cell != was) last = step(was = cell, kind);
    if (cell != last.after && last.finding == Finding::kNone) {
      other.store(last.after, std::memory_order_relaxed);
    }
  }
  return last;
}

std::string GlobalAccess::name_of(uint32_t other) const {
  if (other == kMany) return "another block";
  const Index3& size = block_.grid().blocks;
  const uint32_t linear = other - 1;
  return cat("block (", linear % size.x, ",", linear / size.x % size.y, ",",
             linear / (uint64_t{size.x} * size.y), ")");
}

void GlobalAccess::track(const Line& line, const void* p, size_t bytes, Access kind,
                         const void* instruction) {
  const size_t offset = line.offset(p);
  const size_t first = offset >> line.element_shift;
  const size_t last = (offset + bytes - 1) >> line.element_shift;
  const Step found = change_cells(line.cells + first, last - first + 1, kind);
  if (found.finding != Finding::kNone) report_finding(found, p, bytes, kind, instruction);
}

void GlobalAccess::report_finding(const Step& found, const void* p, size_t bytes, Access kind,
                                  const void* instruction) {
  std::string text =
      cat("this thread ", verb(kind), " ", bytes, " bytes of global memory, ", place(p), ", ");
  if (found.finding == Finding::kUnwritten) {
    text += "which nobody has written";
    report(Fault::kUninitialised, std::move(text), instruction);
  }
  const char* did = found.finding == Finding::kRead      ? " read"
                    : found.finding == Finding::kWritten ? " wrote"
                                                         : " changed atomically";
  text += cat("which ", name_of(found.other), did,
              " in the same launch, with nothing to order the two");
  report(Fault::kRace, std::move(text), instruction);
}

// ---- Order between blocks ----

void GlobalAccess::begin_epoch(uint32_t epoch) {
  epoch_ = epoch;
  written_by_me_ = GlobalCell{launch_->number} << kLaunchShift | kWrittenCell |
                   GlobalCell{std::min(epoch, kMaxEpoch)} << kEpochShift |
                   GlobalCell{me_} << kWriterShift;
}

void GlobalAccess::fence() {
  if (!on()) return;
  launch_->order.begin();
  begin_epoch(epoch_ + 1);
  merge(seen_, read_);
  seen_.erase(me_);
  read_.clear();
}

void GlobalAccess::before_atomic(const void* place) {
  if (!on() || epoch_ == 0 || block_.shared().contains(place)) return;
  BlockClock clock = seen_;
  clock[me_] = epoch_;
  launch_->order.release(place, clock);
}

void GlobalAccess::after_atomic(const void* place) {
  if (!on() || !launch_->order.in_use() || block_.shared().contains(place)) return;
  launch_->order.acquire(place, read_);
}

}  // namespace shale::emulator

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::test {

// A disk operation that a program requested, as recorded by disk_fault_library.cpp.
enum class DiskOp : uint8_t {
  kOther,  // an operation that changes nothing: open, pread, close
  kPrint,  // write of `data` to standard output, not to the disk
  kCreate,
  kWrite,    // write of `data` at `offset`
  kResize,   // change of the file's size to `offset` bytes
  kReserve,  // reservation of at least `offset` bytes
  kSyncFile,
  kSyncFolder,
  kMakeFolder,
  kRename,  // rename to the path `to`
  kRemove,  // removal of a file or an empty folder
};

// Returns true if the operation needs disk space, for data or for a name.
constexpr bool takes_room(DiskOp op) {
  return op == DiskOp::kCreate || op == DiskOp::kWrite || op == DiskOp::kReserve ||
         op == DiskOp::kMakeFolder;
}

struct DiskCall {
  DiskOp op = DiskOp::kOther;
  std::string name;  // name of the libc function
  std::string path;
  std::string to;
  int64_t offset = 0;
  std::string data;
};

// Encode one log record, and decode a log. A process that appends to a log may be killed at any
// time, but the last record is complete, because a record is a single write.
std::string encode(const DiskCall& call);
std::vector<DiskCall> decode_disk_log(const std::string& log);

}  // namespace shale::test

#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::test {

// What a program asked the system to do to a disk, as disk_fault_library.cpp records it.
enum class DiskOp : uint8_t {
  kOther,  // changes nothing: open, pread, close
  kPrint,  // to standard output, not to the disk: `data`
  kCreate,
  kWrite,    // `data` at `offset`
  kResize,   // to `offset` bytes
  kReserve,  // at least `offset` bytes
  kSyncFile,
  kSyncFolder,
  kMakeFolder,
  kRename,  // to `to`
  kRemove,  // a file, or an empty folder
};

// Whether it needs room on the disk, for data or a name.
constexpr bool takes_room(DiskOp op) {
  return op == DiskOp::kCreate || op == DiskOp::kWrite || op == DiskOp::kReserve ||
         op == DiskOp::kMakeFolder;
}

struct DiskCall {
  DiskOp op = DiskOp::kOther;
  std::string name;  // of the system's function
  std::string path;
  std::string to;
  int64_t offset = 0;
  std::string data;
};

// One record of a log, and all of them. A log is appended to by processes that may be killed at any
// time, but never in the middle of a record, which is one write.
std::string encode(const DiskCall& call);
std::vector<DiskCall> decode_disk_log(const std::string& log);

}  // namespace shale::test

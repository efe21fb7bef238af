#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shale/test/faults/disk_call.h"

namespace shale::test {

// Possible fates of unsynced changes in a power failure. Only an fsync of a file makes its data
// durable, and only an fsync of a folder makes its names durable: file systems promise no more,
// although most do more.
enum class Unsynced {
  kLost,
  kKept,       // all changes survive, as if a process was killed
  kNamesKept,  // names survive, data does not: files end where they were synced
  kZeroed,     // names and sizes survive, data reads as zeros
  kAny,        // a random subset of changes survives (by a seed), some only in part
};

// Model of a folder on a disk that tracks what was synced. It is fed with the calls that a program
// made, and can create the folder as it may be found after a crash.
class CrashModel {
 public:
  // `root`: an existing empty folder, in which all paths of the calls lie.
  explicit CrashModel(std::string root);

  // Applies a call. Throws std::runtime_error for a call that contradicts earlier ones.
  void apply(const DiskCall& call);

  // Creates `folder`, which must not exist, as it may be found after a crash.
  void lay_out(const std::string& folder, Unsynced unsynced, uint64_t seed = 0) const;

 private:
  struct FileChange {
    int64_t offset = 0;  // offset of the data, or the new size
    std::string data;
    bool is_resize = false;
  };
  struct Node;
  struct NameChange {
    std::string removed;  // name that a rename or removal removes; empty: none
    std::string added;    // name that the change adds; empty: none
    std::shared_ptr<Node> node;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    bool is_folder = false;
    std::string synced;  // synced content of a file
    std::string now;
    std::vector<FileChange> changes;  // changes that turn `synced` into `now`
    Names names_synced;               // synced names in a folder
    Names names_now;
    std::vector<NameChange> name_changes;
  };

  Node& folder_of(const std::string& path, std::string& name) const;
  Node& node_at(const std::string& path) const;
  void change_names(Node& folder, NameChange change) const;
  static void apply_to(std::string& data, const FileChange& change);
  static void apply_to(Names& names, const NameChange& change);
  static std::string data_of(const Node& file, Unsynced unsynced, uint64_t& seed);
  static void lay_out(const Node& node, const std::string& path, Unsynced unsynced, uint64_t& seed);

  const std::string root_;
  const std::shared_ptr<Node> top_;
};

}  // namespace shale::test

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shale/test/faults/disk_call.h"

namespace shale::test {

// Possible fates of unsynced changes in a power failure. Only an fsync of a file makes its data
// durable, and only an fsync of a folder makes the names in it durable. Most file systems keep
// more, but none promises it.
enum class Unsynced {
  kLost,
  kKept,       // all changes survive, as when only the process is killed
  kNamesKept,  // names survive, data does not: a file has the length that it had at its last sync
  kZeroed,     // names and sizes survive, data reads as zeros
  kAny,        // a random subset of changes survives (by a seed), some only in part
};

// Model of a folder on a disk that tracks what was synced. It gets the disk calls that a program
// made, and can create the folder in a state in which a crash may leave it.
class CrashModel {
 public:
  // `root`: an existing empty folder, in which all paths of the calls lie.
  explicit CrashModel(std::string root);

  // Applies a call. Throws std::runtime_error for a call that contradicts earlier ones.
  void apply(const DiskCall& call);

  // Creates `folder` in a state in which a crash may leave it. The folder must not exist.
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

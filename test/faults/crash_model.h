#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "shale/test/faults/disk_call.h"

namespace shale::test {

// What may have become of changes that were not synced when the power failed. Data of a file is
// synced by an fsync of the file, names in a folder by an fsync of the folder, and by nothing else:
// file systems promise no more, although most do more.
enum class Unsynced {
  kLost,
  kKept,       // also what a process leaves that is killed
  kNamesKept,  // the names are there, the data is not: files end where they were synced
  kZeroed,     // the names and the sizes are there, the data is zeros
  kAny,        // any of the changes, in any combination, and writes in part: by a seed
};

// A folder on a disk, of which is known what was synced. Fed with the calls that a program made;
// can lay out at any time what would be found after a crash.
class CrashModel {
 public:
  // `root`, an existing empty folder, is where the calls' paths begin.
  explicit CrashModel(std::string root);

  // Throws std::runtime_error for a call that does not fit what came before.
  void apply(const DiskCall& call);

  // Makes `folder`, which must not exist.
  void lay_out(const std::string& folder, Unsynced unsynced, uint64_t seed = 0) const;

 private:
  struct FileChange {
    int64_t offset = 0;  // of the data; or the new size
    std::string data;
    bool is_resize = false;
  };
  struct Node;
  struct NameChange {
    std::string removed;  // empty: none
    std::string added;    // empty: none
    std::shared_ptr<Node> node;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;
  struct Node {
    bool is_folder = false;
    std::string synced;  // of a file
    std::string now;
    std::vector<FileChange> changes;  // from one to the other
    Names names_synced;               // of a folder
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

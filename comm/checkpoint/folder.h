#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/comm/checkpoint/manifest.h"

namespace shale {

// The folder of a run's checkpoints, DIR/checkpoints:
//
//   step_00000100/               a checkpoint: manifest.json, one file per rank that wrote it, and
//                                attachments, which nothing here reads
//   step_00000200.tmp-<nonce>/   one that is being written, or was when the run ended
//   .trash-<nonce>-.../          one that is being deleted
//   latest                       the name of the newest, for people; nothing here reads it
//
// A checkpoint is committed by the rename that gives it its name, after all its files and names are
// on the disk. So what has such a name is complete, whenever a process or the machine stopped, and
// what else is there can be thrown away. Saving takes several ranks:
//
//   one rank    begin(step, nonce)
//   each rank   CheckpointShardWriter writer(temporary_path(step, nonce), shard_file_name(...),
//   ...) one rank    once each rank's finish() returned: add_shard to a manifest, commit(manifest,
//   nonce),
//               retire(keep, step); or, if any rank failed, discard(step, nonce)
//
// The folder is on a file system that all ranks see. No second run may use it at the same time.
// Every function throws DiskError where the disk fails.
class CheckpointFolder {
 public:
  // Small files that a checkpoint carries for other programs: names (is_plain_file_name) and bytes.
  using Attachments = std::map<std::string, std::string>;

  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}  // touches nothing

  const std::string& path() const { return path_; }
  std::string path_of(int64_t step) const;

  // Steps of all checkpoints by their names, newest first; whether they are sound, nobody looked.
  // Empty if there is no such folder.
  std::vector<int64_t> steps() const;

  // Removes what killed runs left: at the start of a run, by one rank, before anybody saves.
  // Returns how many such entries there were.
  int64_t clean() const;

  // ---- Saving ----

  // Makes the temporary folder, and this one if it does not exist.
  void begin(int64_t step, std::string_view nonce) const;
  std::string temporary_path(int64_t step, std::string_view nonce) const;
  // Writes the attachments by their names, then the manifest, whose step is that of begin, syncs
  // everything, and gives the checkpoint its name. One of the same step goes to the trash first.
  // When this returns, the checkpoint survives any crash. If it throws, the checkpoint may or may
  // not be there, but whole.
  void commit(const CheckpointManifest& manifest, std::string_view nonce,
              const Attachments& attachments = {}) const;
  // Removes the temporary folder, if it is there.
  void discard(int64_t step, std::string_view nonce) const;

  // Deletes old checkpoints: keeps the newest `keep` (at least 1) of those whose manifest is valid
  // and whose files have their sizes, everything newer than these, and `committed`, the step that
  // was saved just now.
  void retire(int64_t keep, int64_t committed) const;

 private:
  std::string path_;
};

// The newest checkpoint of what `path` stands for, by its name: itself, if it has a manifest; else
// of the folder of a run, or of its checkpoints/. Nothing if there is none.
std::optional<std::string> newest_checkpoint(const std::string& path);

// The attachments of a checkpoint: what its manifest does not name. Throws as Folder.
CheckpointFolder::Attachments read_attachments(const std::string& checkpoint,
                                               const CheckpointManifest& manifest);

// Sixteen random hexadecimal digits: two runs, or a run and its leftovers, do not get in each
// other's way.
std::string make_checkpoint_nonce();

// "step_00000100", and the reverse: nothing for any other name.
std::string checkpoint_name(int64_t step);
std::optional<int64_t> parse_checkpoint_name(std::string_view name);

// The newest step whose checkpoint is valid to its last byte. `on_invalid` gets each newer one that
// is not, and what is wrong with it. A disk that fails is no reason to take an older one:
// DiskError.
std::optional<int64_t> find_newest_valid(
    const CheckpointFolder& folder,
    const std::function<void(int64_t step, const std::string& problem)>& on_invalid);

}  // namespace shale

#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/comm/checkpoint/manifest.h"

namespace shale {

// Folder of a run's checkpoints, DIR/checkpoints:
//
//   step_00000100/               a checkpoint: manifest.json, one file per rank that wrote it, and
//                                attachments for other programs
//   step_00000200.tmp-<nonce>/   a checkpoint that is being written, or was when the run ended
//   .trash-<nonce>-.../          a checkpoint that is being deleted
//   latest                       name of the newest checkpoint, for users; not read here
//
// All files of a checkpoint are synced to disk before the rename to its final name commits it. A
// folder with a final name is therefore complete, even if a process or the machine stopped at any
// time. All other folders can be deleted. To save with several ranks:
//
//   one rank    begin(step, nonce)
//   each rank   CheckpointShardWriter writer(temporary_path(step, nonce),
//                                            shard_file_name(...), ...)
//   one rank    once each rank's finish() returned: add_shard to a manifest, commit(manifest,
//               nonce), retire(keep, step)
//   one rank    if any rank failed: discard(step, nonce)
//
// The folder is on a file system that all ranks see. No second run may use it at the same time.
// Every function throws DiskError if the disk fails.
class CheckpointFolder {
 public:
  // Small files in a checkpoint for other programs: contents by name (is_plain_file_name).
  using Attachments = std::map<std::string, std::string>;

  // does not access the disk
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string path_of(int64_t step) const;

  // Steps of all checkpoints, newest first, from the names of their folders. Does not check their
  // contents. Empty if there is no such folder.
  std::vector<int64_t> steps() const;

  // Removes leftovers of killed runs. Call it at the start of a run, on one rank, before any save.
  // Returns the number of removed entries.
  int64_t clean() const;

  // ---- Saving ----

  // Creates a checkpoint's temporary folder, and the folder of all checkpoints if it is missing.
  void begin(int64_t step, std::string_view nonce) const;
  std::string temporary_path(int64_t step, std::string_view nonce) const;
  // Writes the attachments, then the manifest, whose step is that of begin(). Syncs everything and
  // renames the checkpoint to its final name. Moves an existing checkpoint of the same step to the
  // trash first. After the return, the checkpoint survives any crash. After an exception, it is
  // complete or absent.
  void commit(const CheckpointManifest& manifest, std::string_view nonce,
              const Attachments& attachments = {}) const;
  // Removes the checkpoint's temporary folder if it exists.
  void discard(int64_t step, std::string_view nonce) const;

  // Deletes old checkpoints. Keeps:
  // - the newest `keep` (at least 1) checkpoints with a valid manifest and complete files,
  // - every checkpoint that is newer than one of these,
  // - the checkpoint of step `committed`, which was just saved,
  // - steps for which `spares` returns true.
  //
  // known_sound: steps that need no check, because this process has written or checked their files.
  // Receives the steps that this call finds to be complete. Null: check all.
  void retire(int64_t keep, int64_t committed, const std::function<bool(int64_t step)>& spares = {},
              std::set<int64_t>* known_sound = nullptr) const;

 private:
  std::string path_;
};

// Returns the path of the newest checkpoint in `path`, which is a checkpoint, a folder of
// checkpoints, or a run's folder with checkpoints/. Returns `path` itself if it has a manifest, and
// nullopt if there is no checkpoint.
std::optional<std::string> newest_checkpoint(const std::string& path);

// Reads the attachments of a checkpoint: the files that its manifest does not name. Throws what
// Folder throws.
CheckpointFolder::Attachments read_attachments(const std::string& checkpoint,
                                               const CheckpointManifest& manifest);

// Returns sixteen random hexadecimal digits, so that temporary names do not collide.
std::string make_checkpoint_nonce();

// Format and parse names such as "step_00000100". Parsing returns nullopt for any other name.
std::string checkpoint_name(int64_t step);
std::optional<int64_t> parse_checkpoint_name(std::string_view name);

}  // namespace shale

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
// A checkpoint is committed by renaming it to its final name, after all its files and names are on
// disk. An entry with such a name is therefore complete, even if a process or the machine stopped
// at any time; other entries can be deleted. To save with several ranks:
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
  // Small files in a checkpoint for other programs: names (is_plain_file_name) and bytes.
  using Attachments = std::map<std::string, std::string>;

  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}  // no disk access

  const std::string& path() const { return path_; }
  std::string path_of(int64_t step) const;

  // Steps of all checkpoints by their names, newest first; contents are not checked. Empty if there
  // is no such folder.
  std::vector<int64_t> steps() const;

  // Removes leftovers of killed runs. Call it at the start of a run, on one rank, before any save.
  // Returns the number of removed entries.
  int64_t clean() const;

  // ---- Saving ----

  // Makes the temporary folder, and this folder if it does not exist.
  void begin(int64_t step, std::string_view nonce) const;
  std::string temporary_path(int64_t step, std::string_view nonce) const;
  // Writes the attachments, then the manifest (with the step of begin), syncs everything, and
  // renames the checkpoint to its final name. An existing checkpoint of the same step goes to the
  // trash first. On return the checkpoint survives any crash. After an exception it is complete or
  // absent.
  void commit(const CheckpointManifest& manifest, std::string_view nonce,
              const Attachments& attachments = {}) const;
  // Removes the temporary folder if it exists.
  void discard(int64_t step, std::string_view nonce) const;

  // Deletes old checkpoints. Keeps the newest `keep` (at least 1) checkpoints with a valid manifest
  // and complete files, everything newer than these checkpoints, `committed`, the step just saved,
  // and steps that `spares` returns true for. known_sound: steps whose files need no check, as this
  // process wrote or checked them; receives the steps that this call checks. Null: checks all.
  void retire(int64_t keep, int64_t committed, const std::function<bool(int64_t step)>& spares = {},
              std::set<int64_t>* known_sound = nullptr) const;

 private:
  std::string path_;
};

// Path of the newest checkpoint at `path`: `path` itself if it has a manifest, else the newest in
// the folder of a run or in its checkpoints/. nullopt if there is none.
std::optional<std::string> newest_checkpoint(const std::string& path);

// Reads the attachments of a checkpoint: the files that its manifest does not name. Throws what
// Folder throws.
CheckpointFolder::Attachments read_attachments(const std::string& checkpoint,
                                               const CheckpointManifest& manifest);

// Sixteen random hexadecimal digits, so that names of two runs, or of leftovers, do not collide.
std::string make_checkpoint_nonce();

// Format and parse "step_00000100"; parsing returns nothing for any other name.
std::string checkpoint_name(int64_t step);
std::optional<int64_t> parse_checkpoint_name(std::string_view name);

}  // namespace shale

#include "shale/comm/checkpoint/spread.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::comm {
namespace {

constexpr const char* kTag = "checkpoint files of hosts";
constexpr int64_t kPiece = int64_t{16} << 20;  // bytes of one broadcast

std::string text_of_manifest(const std::string& folder) {
  try {
    return read_manifest_text(Folder::open(folder));
  } catch (const MissingInputError&) {
    return {};
  }
}

// Returns a character for each file of the manifest: "1" if this host has the file with its full
// size, otherwise "0".
std::string files_here(const std::string& folder, const CheckpointManifest& manifest) {
  std::string here;
  for (const CheckpointFile& file : manifest.files) {
    std::error_code error;
    const auto bytes = std::filesystem::file_size(std::filesystem::path(folder) / file.name, error);
    here += !error && static_cast<int64_t>(bytes) == file.bytes ? '1' : '0';
  }
  return here;
}

std::string writer_of(const CheckpointManifest& manifest, size_t file) {
  const Json state = Json::parse(manifest.state, {.max_bytes = kMaxManifestBytes}, "state");
  const Json* const hosts = state.find("hosts");
  if (hosts == nullptr || !hosts->is_array() || file >= hosts->size()) return "another host";
  return cat("host ", (*hosts)[file].is_string() ? (*hosts)[file].text() : std::string("?"));
}

// Copies a file from rank `source` to ranks that call this with `takes`. Returns this rank's error.
std::string send_file(ProcessGroup& group, const std::string& folder, const CheckpointFile& file,
                      int source, bool takes) {
  const std::string path = (std::filesystem::path(folder) / file.name).string();
  std::optional<File> from;
  std::optional<AtomicFile> to;
  std::string problem;
  // After an error this rank sends empty messages, because the other ranks still wait for them.
  const auto attempt = [&](const auto& body) {
    if (!problem.empty()) return;
    try {
      body();
    } catch (...) {
      problem = pack_problem(std::current_exception());
    }
  };
  attempt([&] {
    if (group.rank() == source) from = File::open(Folder::open(folder), file.name);
    if (takes) to.emplace(path);
  });
  for (int64_t begin = 0; begin < file.bytes; begin += kPiece) {
    std::string piece;
    if (from) {
      piece.resize(static_cast<size_t>(std::min(kPiece, file.bytes - begin)));
      attempt([&] { from->read_at(begin, std::as_writable_bytes(std::span(piece))); });
    }
    if (!problem.empty()) piece.clear();
    piece = group.broadcast_bytes(piece, source, kTag);
    if (!takes) continue;
    attempt([&] {
      if (piece.empty()) throw DiskError(cat(path, ": cannot be read on the host that has it"));
      to->write_at(begin, std::as_bytes(std::span(piece)));
    });
  }
  attempt([&] {
    if (takes) to->commit(file.bytes);
  });
  return problem;
}

}  // namespace

void spread_checkpoint(ProcessGroup& group, const std::string& folder, bool owns) {
  std::string mine, problem;
  try {
    if (owns) mine = text_of_manifest(folder);
  } catch (...) {
    problem = pack_problem(std::current_exception());
  }
  throw_problem(first_problem(group, kTag, problem));
  int64_t root = mine.empty() ? -group.size() : -group.rank();
  group.all_reduce_max(make_view(&root, {1}), {.tag = kTag});
  if (root == -group.size()) throw MissingInputError(cat(folder, ": no host has manifest.json"));
  const std::string text = group.broadcast_bytes(mine, static_cast<int>(-root), kTag);
  const CheckpointManifest manifest =
      parse_checkpoint_manifest(text, cat(folder, "/", kManifestName));
  const std::vector<std::string> here =
      group.all_gather_bytes(owns ? files_here(folder, manifest) : "", kTag);
  const auto rank = static_cast<size_t>(group.rank());
  try {
    if (owns) Folder::make(folder);
  } catch (...) {
    problem = pack_problem(std::current_exception());
  }
  for (size_t i = 0; i < manifest.files.size(); ++i) {
    const auto has = [&](const std::string& files) { return !files.empty() && files[i] == '1'; };
    const auto lacks = [&](const std::string& files) { return !files.empty() && files[i] == '0'; };
    if (std::ranges::none_of(here, lacks)) continue;
    const auto source = std::ranges::find_if(here, has);
    if (source == here.end()) {
      throw MissingInputError(cat(folder, ": no host has ", manifest.files[i].name, ", which ",
                                  writer_of(manifest, i), " wrote"));
    }
    const std::string failed =
        send_file(group, folder, manifest.files[i], static_cast<int>(source - here.begin()),
                  problem.empty() && lacks(here[rank]));
    if (problem.empty()) problem = failed;
  }
  try {
    // Writes the manifest last, because a folder with a manifest counts as complete.
    if (owns && mine.empty() && problem.empty()) {
      write_file_atomically((std::filesystem::path(folder) / kManifestName).string(), text);
    }
  } catch (...) {
    problem = pack_problem(std::current_exception());
  }
  throw_problem(first_problem(group, kTag, problem));
}

}  // namespace shale::comm

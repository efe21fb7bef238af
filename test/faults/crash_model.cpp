#include "shale/test/faults/crash_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace shale::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kSectorBytes = 512;  // a disk writes sectors atomically

uint64_t next_random(uint64_t& seed) {  // splitmix64
  uint64_t value = seed += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

bool toss(uint64_t& seed) {
  return (next_random(seed) & 1) != 0;
}

}  // namespace

CrashModel::CrashModel(std::string root)
    : root_(std::move(root)), top_(std::make_shared<Node>(Node{.is_folder = true})) {}

CrashModel::Node& CrashModel::folder_of(const std::string& path, std::string& name) const {
  const fs::path relative = fs::path(path).lexically_relative(root_);
  name = relative.filename().string();
  Node* folder = top_.get();
  for (const fs::path& part : relative.parent_path()) {
    const auto it = folder->names_now.find(part.string());
    if (it == folder->names_now.end() || !it->second->is_folder) {
      throw std::runtime_error("crash model: no folder for " + path);
    }
    folder = it->second.get();
  }
  return *folder;
}

CrashModel::Node& CrashModel::node_at(const std::string& path) const {
  if (path == root_) return *top_;
  std::string name;
  Node& folder = folder_of(path, name);
  const auto it = folder.names_now.find(name);
  if (it == folder.names_now.end()) throw std::runtime_error("crash model: there is no " + path);
  return *it->second;
}

void CrashModel::apply_to(std::string& data, const FileChange& change) {
  const auto offset = static_cast<size_t>(change.offset);
  if (change.is_resize) {
    data.resize(offset);
  } else {
    data.resize(std::max(data.size(), offset + change.data.size()));
    data.replace(offset, change.data.size(), change.data);
  }
}

void CrashModel::apply_to(Names& names, const NameChange& change) {
  if (!change.removed.empty()) names.erase(change.removed);
  if (!change.added.empty()) names[change.added] = change.node;
}

void CrashModel::change_names(Node& folder, NameChange change) const {
  apply_to(folder.names_now, change);
  folder.name_changes.push_back(std::move(change));
}

void CrashModel::apply(const DiskCall& call) {
  std::string name;
  const auto change_file = [&](FileChange change) {
    Node& file = node_at(call.path);
    apply_to(file.now, change);
    file.changes.push_back(std::move(change));
  };
  switch (call.op) {
    case DiskOp::kOther:
    case DiskOp::kPrint: return;
    case DiskOp::kCreate:
    case DiskOp::kMakeFolder: {
      Node& folder = folder_of(call.path, name);
      const bool is_folder = call.op == DiskOp::kMakeFolder;
      change_names(folder, {"", name, std::make_shared<Node>(Node{.is_folder = is_folder})});
      return;
    }
    case DiskOp::kWrite: return change_file({call.offset, call.data, false});
    case DiskOp::kResize: return change_file({call.offset, "", true});
    case DiskOp::kReserve: {
      const auto size = static_cast<int64_t>(node_at(call.path).now.size());
      return change_file({std::max(size, call.offset), "", true});
    }
    case DiskOp::kSyncFile: {
      Node& file = node_at(call.path);
      file.synced = file.now;
      file.changes.clear();
      return;
    }
    case DiskOp::kSyncFolder: {
      Node& folder = node_at(call.path);
      folder.names_synced = folder.names_now;
      folder.name_changes.clear();
      return;
    }
    case DiskOp::kRename: {
      std::string to;
      Node& folder = folder_of(call.path, name);
      if (&folder != &folder_of(call.to, to)) {
        throw std::runtime_error("crash model: a rename from folder to folder, " + call.path);
      }
      const std::shared_ptr<Node> node = folder.names_now.at(name);
      return change_names(folder, {name, to, node});
    }
    case DiskOp::kRemove: {
      Node& folder = folder_of(call.path, name);
      if (!folder.names_now.contains(name)) {
        throw std::runtime_error("crash model: there is no " + call.path);
      }
      return change_names(folder, {name, "", nullptr});
    }
  }
}

std::string CrashModel::data_of(const Node& file, Unsynced unsynced, uint64_t& seed) {
  std::string data = unsynced == Unsynced::kKept ? file.now : file.synced;
  if (unsynced == Unsynced::kZeroed) data.resize(file.now.size(), '\0');
  if (unsynced != Unsynced::kAny) return data;
  for (FileChange change : file.changes) {
    if (toss(seed)) continue;
    const auto size = static_cast<int64_t>(change.data.size());
    if (!change.is_resize && toss(seed)) {  // only some of its sectors survive
      const uint64_t sectors = next_random(seed) % static_cast<uint64_t>(size / kSectorBytes + 1);
      change.data.resize(static_cast<size_t>(sectors) * kSectorBytes);
    }
    apply_to(data, change);
  }
  return data;
}

void CrashModel::lay_out(const Node& node, const std::string& path, Unsynced unsynced,
                         uint64_t& seed) {
  if (!node.is_folder) {
    const std::string data = data_of(node, unsynced, seed);
    std::ofstream out(path, std::ios::binary);
    out << data;
    out.close();
    if (!out) throw std::runtime_error("crash model: cannot write " + path);
    return;
  }
  fs::create_directory(path);
  Names names = unsynced == Unsynced::kLost || unsynced == Unsynced::kAny ? node.names_synced
                                                                          : node.names_now;
  if (unsynced == Unsynced::kAny) {
    for (const NameChange& change : node.name_changes) {
      if (toss(seed)) apply_to(names, change);
    }
  }
  for (const auto& [name, inside] : names) lay_out(*inside, path + "/" + name, unsynced, seed);
}

void CrashModel::lay_out(const std::string& folder, Unsynced unsynced, uint64_t seed) const {
  lay_out(*top_, folder, unsynced, seed);
}

}  // namespace shale::test

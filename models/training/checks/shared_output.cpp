#include "shale/models/training/checks/shared_output.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <thread>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/problems.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/io/file.h"

namespace shale::models {
namespace {

constexpr const char* kFolderTag = "shared output";
// Maximum time until a file of another host is visible, on a file system that caches names.
constexpr std::chrono::milliseconds kPatience{2000}, kPause{50};
constexpr size_t kMostNamed = 8;

// Files by which ranks find out whether they see one folder.
class Markers {
 public:
  Markers(std::string folder, const std::string& nonce)
      : folder_(std::move(folder)), nonce_(nonce) {}
  ~Markers() {
    std::error_code error;
    if (!mine_.empty()) std::filesystem::remove(mine_, error);
  }
  Markers(const Markers&) = delete;
  Markers& operator=(const Markers&) = delete;

  void make(int rank) {
    const Folder folder = Folder::open(folder_);
    File file = File::create(folder, name(rank));
    mine_ = file.path();
    file.sync();
    file.close();
    folder.sync();
  }
  bool sees(int rank, std::chrono::milliseconds patience = {}) const {
    const std::string path = file_in(folder_, name(rank));
    std::error_code error;
    for (; !std::filesystem::exists(path, error); patience -= kPause) {
      if (patience.count() <= 0) return false;
      std::this_thread::sleep_for(kPause);
    }
    return true;
  }

 private:
  std::string name(int rank) const { return cat(".seen-", nonce_, "-", rank); }

  const std::string folder_, nonce_;
  std::string mine_;
};

std::string names_of(const std::vector<std::string>& hosts) {
  std::string text;
  for (size_t i = 0; i < std::min(hosts.size(), kMostNamed); ++i) {
    text += cat(i == 0 ? "" : ", ", hosts[i]);
  }
  return hosts.size() > kMostNamed ? cat(text, " and ", hosts.size() - kMostNamed, " more") : text;
}

}  // namespace

OutputOwners find_owners(const std::string& folder, const comm::World& world,
                         comm::ProcessGroup& group, bool own_folders) {
  const int rank = world.rank();
  OutputOwners result{.is_owner = rank == 0};
  result.hosts = group.all_gather_bytes(host_name(), kFolderTag);
  if (world.local_size() == world.size()) return result;
  const bool is_first = world.local_rank() == 0;  // first rank of its host
  Markers markers(folder, group.broadcast_bytes(rank == 0 ? make_checkpoint_nonce() : "", 0, kFolderTag));
  comm::throw_problem(comm::problem_of_root(group, kFolderTag, [&] { markers.make(0); }));
  bool apart = false;
  std::string problem;
  try {
    apart = is_first && rank != 0 && !markers.sees(0, kPatience);
    if (apart && own_folders) make_folder(folder);
    if (is_first && rank != 0 && (!apart || own_folders)) markers.make(rank);
  } catch (...) {
    problem = comm::pack_problem(std::current_exception());
  }
  comm::throw_problem(comm::first_problem(group, kFolderTag, problem));
  std::vector<std::string> hosts_apart;
  const std::vector<std::string> states = group.all_gather_bytes(apart ? "apart" : "", kFolderTag);
  for (int other = 0; other < world.size(); ++other) {
    if (states[size_t(other)].empty()) continue;
    hosts_apart.push_back(result.hosts[size_t(other)]);
    // A folder belongs to the lowest rank that sees it.
    if (apart && other <= rank && !result.is_owner) {
      if (other == rank) result.is_owner = true;
      if (other < rank && markers.sees(other)) apart = false;
    }
  }
  group.barrier(kFolderTag);  // after this, ranks remove their files
  result.is_shared = hosts_apart.empty();
  if (result.is_shared || own_folders) return result;
  throw ConfigError(cat(
      "--out ", folder, " is not one folder for all hosts: ", names_of(hosts_apart),
      hosts_apart.size() == 1 ? " does" : " do", " not see what rank 0 on ", result.hosts[0],
      " writes there; use a folder on a disk that all hosts share, or let each host keep the files "
      "of its own ranks, with --resume auto --before-resume true"));
}

}  // namespace shale::models

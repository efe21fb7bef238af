#include "shale/models/tools/join/head.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "shale/base/clock.h"
#include "shale/base/cpu_affinity.h"
#include "shale/base/error.h"
#include "shale/base/parse.h"
#include "shale/models/tools/join/frame_stream.h"
#include "shale/models/tools/join/handshake.h"
#include "shale/models/tools/supervision/say.h"
#include "shale/models/training/checks/disk_room.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/tensor/device_backend.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTick_ms = 200;
constexpr double kHandshake_s = 10;  // maximum duration of a handshake
constexpr double kGoodbye_s = 2;     // maximum time for telling the nodes that the run has ended
// Maximum number of connections that have not finished their handshake.
constexpr int kMostStrangers = 64;
constexpr size_t kMostComplaints = 20;

// Sets the variables that make Open MPI 4, Open MPI 5 (PRRTE) and MPICH start their daemons with
// the agent instead of ssh. The agent stays connected to the daemon that it started.
void set_launcher_variables(const std::string& folder, int64_t count) {
  const std::string agent = cat(folder, "/", kAgentName), hosts = cat(folder, "/hosts");
  const std::pair<std::string, std::string> variables[] = {
      {"OMPI_MCA_plm", "rsh"},
      {"OMPI_MCA_plm_rsh_agent", agent},
      {"OMPI_MCA_plm_rsh_no_tree_spawn", "1"},
      {"OMPI_MCA_plm_rsh_num_concurrent", cat(count)},
      {"OMPI_MCA_orte_leave_session_attached", "1"},
      {"OMPI_MCA_orte_default_hostfile", hosts},
      {"PRTE_MCA_plm", "ssh"},
      {"PRTE_MCA_plm_ssh_agent", agent},
      {"PRTE_MCA_plm_ssh_no_tree_spawn", "1"},
      {"PRTE_MCA_plm_ssh_num_concurrent", cat(count)},
      {"PRTE_MCA_prte_leave_session_attached", "1"},
      {"PRTE_MCA_prte_default_hostfile", hosts},
      {"HYDRA_LAUNCHER", "ssh"},
      {"HYDRA_LAUNCHER_EXEC", agent},
      {"HYDRA_HOST_FILE", hosts + ".mpich"},
  };
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
}

// Excludes addresses that several nodes have, such as those of container bridges, from Open MPI,
// which would try to reach other nodes through them. networks: Hello::networks of each node.
void avoid_networks_of_several(const std::vector<std::string>& networks) {
  constexpr const char* kInclude = "OMPI_MCA_btl_tcp_if_include";
  constexpr const char* kExclude = "OMPI_MCA_btl_tcp_if_exclude";
  static const bool chosen = std::getenv(kInclude) != nullptr || std::getenv(kExclude) != nullptr;
  std::set<std::string> seen, shared;
  for (const std::string& list : networks) {
    std::istringstream words(list);
    for (std::string word; words >> word;) {
      if (!seen.insert(word).second) shared.insert(word);
    }
  }
  if (chosen || shared.empty()) return;
  std::string text = "127.0.0.0/8,sppp";  // Open MPI's default
  for (const std::string& network : shared) text += cat(",", network);
  setenv(kExclude, text.c_str(), /*overwrite=*/1);
}

// Makes a folder for this user only, with a link to this program under the name of the agent.
std::string make_folder() {
  std::string folder = cat(temporary_folder(), "/shale-head-XXXXXX");
  if (folder.find(' ') != folder.npos) {
    throw ConfigError(
        cat("TMPDIR: expected a path without blanks, at which mpirun would split it, "
            "found ",
            temporary_folder()));
  }
  if (mkdtemp(folder.data()) == nullptr) {
    throw DiskError(cat(folder, ": cannot create this folder; set TMPDIR to another folder"));
  }
  fs::create_symlink(fs::read_symlink("/proc/self/exe"), fs::path(folder) / kAgentName);
  return folder;
}

}  // namespace

// A node, or a stranger that has not proved that it knows the token.
struct Head::Member {
  explicit Member(int socket)
      : stream(socket), address(peer_address(socket)), head(local_address(socket)) {}

  FrameStream stream;
  std::string address, head;  // addresses of both ends of the connection
  std::string challenge = make_challenge();
  bool joined = false;
  bool gone = false;
  Hello hello = {};
  std::unique_ptr<FrameStream> agent = nullptr;  // whose command the node runs; null: none
  int64_t start = 0;                             // number of the command
  Clock::time_point since = Clock::now();

  bool is_node() const { return joined && !gone && !hello.waits; }
  std::string name() const { return cat(hello.host, " (", address, ")"); }
};

Head::Head(const Options& options)
    : options_(options),
      token_(take_token()),
      build_(this_build()),
      here_{.gpus = std::ssize(visible_gpus().ids), .cpus = cpu_counts().node},
      at_(parse_host_port("--listen", options.listen)),
      listener_(listen_on(at_)) {
  folder_ = make_folder();
  agents_ = file_socket(cat(folder_, "/", kAgentSocket), /*listens=*/true);
  set_launcher_variables(folder_, options.count);
  thread_ = std::thread([this] { serve(); });
}

Head::~Head() {
  finish(static_cast<int>(ExitCode::kInternal));
  thread_.join();
  close(listener_);
  close(agents_);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

void Head::serve() {
  for (;;) {
    std::vector<pollfd> ready = {{.fd = listener_, .events = POLLIN, .revents = 0},
                                 {.fd = agents_, .events = POLLIN, .revents = 0}};
    const auto add = [&](const FrameStream& stream) {
      ready.push_back({.fd = stream.socket(), .events = stream.events(), .revents = 0});
    };
    {
      const std::lock_guard lock(mutex_);
      for (const auto& member : members_) {
        add(member->stream);
        if (member->agent) add(*member->agent);
      }
      for (const auto& caller : callers_) add(*caller);
    }
    poll(ready.data(), ready.size(), kTick_ms);
    const std::lock_guard lock(mutex_);
    accept_all();
    for (const auto& member : members_) hear(*member);
    for (auto& caller : callers_) {
      caller->exchange();
      if (const auto frame = caller->next()) start_command(std::move(caller), frame->payload);
    }
    std::erase_if(callers_, [](const auto& caller) { return !caller || caller->closed(); });
    std::erase_if(members_, [](const auto& member) { return member->gone; });
    if (!end_) continue;
    const bool told = std::ranges::none_of(
        members_, [](const auto& member) { return member->joined && member->stream.has_output(); });
    if (told || seconds_since(ended_) > kGoodbye_s) return;
  }
}

void Head::accept_all() {
  const auto accept_from = [](int listener) {
    return accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  };
  auto room = kMostStrangers - std::ranges::count(members_, false, &Member::joined);
  for (int socket = 0; room > 0 && (socket = accept_from(listener_)) >= 0; --room) {
    members_.push_back(std::make_unique<Member>(socket));
    members_.back()->stream.send(FrameType::kChallenge, members_.back()->challenge);
  }
  for (int socket = 0; (socket = accept_from(agents_)) >= 0;) {
    callers_.push_back(std::make_unique<FrameStream>(socket, FrameStream::kLong));
  }
}

void Head::hear(Member& member) {
  std::string lost;
  try {
    member.stream.exchange();
    while (const auto frame = member.stream.next()) take(member, *frame);
    if (member.stream.closed()) lost = "its connection closed";
    if (!member.joined && seconds_since(member.since) > kHandshake_s) lost = "it is silent";
    if (member.joined && !member.stream.keep_alive()) lost = "it does not answer";
  } catch (const Error& error) {
    lost = error.what();
    if (!member.joined) complain(member.address, lost);
  }
  if (!lost.empty() && member.is_node() && !end_) {
    say(cat("node ", member.name(), " has left: ", lost));
    lost_ = true;
  }
  // Then the agent's connection closes, and mpirun ends the run.
  member.gone = member.gone || !lost.empty();
  if (!member.agent) return;
  member.agent->exchange();
  if (!member.agent->closed()) return;
  member.stream.send(FrameType::kClose, cat(member.start, "\n"));
  member.agent.reset();
}

void Head::take(Member& member, const Frame& frame) {
  if (!member.joined) {
    if (frame.type == FrameType::kHello && !member.gone) take_hello(member, frame.payload);
  } else if (frame.type == FrameType::kStop) {
    say(cat(member.name(), " is asked to stop; the run saves and ends"));
    kill(getpid(), SIGUSR1);  // SupervisedProcess forwards it to the run
  } else if (frame.type == FrameType::kOutput || frame.type == FrameType::kEnded) {
    const std::string number = frame.payload.substr(0, frame.payload.find('\n'));
    if (member.agent && number == cat(member.start)) member.agent->send(frame.type, frame.payload);
  }
}

// Returns the content of FrameType::kRefused, a digit and the reason, if the node may not join;
// else an empty text.
std::string Head::objection(const Member& member) const {
  const Hello& hello = member.hello;
  if (hello.build != build_) {
    return cat("0this node runs Shale ", hello.build, ", the head ", build_,
               "; install the same build on both");
  }
  if (member.address == member.head && !hello.waits) {
    return "0this host is the head of the run, which needs no shale join";
  }
  for (const auto& other : members_) {
    if (!other->joined || other->gone) continue;
    const bool same_rank = hello.rank >= 0 && other->hello.rank == hello.rank;
    const bool same_host = !hello.waits && other->is_node() && other->address == member.address;
    if (same_rank || same_host) return cat("1", other->name(), " has joined in its place");
  }
  return count() < options_.count ? "" : cat("1the run has all its ", options_.count, " nodes");
}

void Head::take_hello(Member& member, const std::string& payload) {
  const auto accepted = accept_answer(token_, member.challenge, payload);
  if (accepted) member.hello = accepted->hello;
  const std::string why = accepted ? objection(member) : "0its token differs from the head's";
  if (!why.empty()) {
    complain(member.address, why.substr(1));
    member.stream.send(FrameType::kRefused, why);
    member.stream.exchange();
    member.gone = true;
    return;
  }
  member.joined = true;
  member.stream.send(FrameType::kWelcome, accepted->secrets.head_proof);
  member.stream.set_keys(accepted->secrets.to_node, accepted->secrets.to_head);
  if (end_) member.stream.send(FrameType::kRunEnded, cat(*end_));
}

void Head::start_command(std::unique_ptr<FrameStream> agent, const std::string& payload) {
  const size_t line = payload.find('\n');
  const std::string address = payload.substr(0, line);
  for (const auto& member : members_) {
    if (!member->is_node() || member->address != address) continue;
    member->agent = std::move(agent);
    member->start = ++starts_;
    member->stream.send(FrameType::kStart, cat(starts_, payload.substr(line)));
    return;
  }
  say(cat("node ", excerpt(address),
          " is no longer connected"));  // the agent's connection closes, as if the node were lost
}

// Prints each complaint only once, because anybody can connect.
void Head::complain(const std::string& address, const std::string& why) {
  const std::string text = cat("refused ", address, ": ", why);
  if (complaints_.size() < kMostComplaints && complaints_.insert(text).second) say(text);
}

int64_t Head::count() const {
  return 1 + std::ranges::count_if(members_, [&](const auto& member) {
           return options_.processes ? member->joined && !member->gone : member->is_node();
         });
}

// Returns a message about the missing nodes; empty if none is missing.
std::string Head::missing() const {
  constexpr int kMostListed = 8;
  if (count() >= options_.count) return {};
  std::string names = "this host", absent;
  std::set<int64_t> ranks;
  for (const auto& member : members_) {
    if (member->is_node()) names += cat(", ", member->name());
    if (member->joined) ranks.insert(member->hello.rank);
  }
  for (int64_t rank = 1, listed = 0; rank < options_.count && listed < kMostListed; ++rank) {
    if (!ranks.contains(rank)) absent += cat(listed++ == 0 ? "" : ", ", rank);
  }
  std::string command = "shale join ";
  for (const std::string& host : at_.host.empty() ? own_addresses() : std::vector{at_.host}) {
    command += cat(command.ends_with(' ') ? "" : " or ", host, ":", at_.port);
  }
  return cat(count(), " of ", options_.count, options_.processes ? " processes" : " nodes",
             " have joined (", names, "); ",
             options_.processes ? cat("missing: ranks ", absent)
                                : cat("run with the same SHALE_TOKEN on other nodes: ", command));
}

void Head::wait_for_nodes(SupervisedProcess& process,
                          const std::function<void(const std::vector<Node>&)>& check) {
  const auto start = Clock::now();
  auto printed = start;
  std::string before;
  while (!process.stop_requested()) {
    const std::string now = [&] {
      const std::lock_guard lock(mutex_);
      return missing();
    }();
    if (check) check(nodes());
    if (now.empty()) return;
    if (seconds_since(start) > options_.limit_s) {
      throw UnavailableError(
          cat("shale run: ", now, "; gave up after --join-timeout ", options_.limit_s, " s"));
    }
    if (now != before || seconds_since(printed) > kProgress_s) {
      say(now);
      before = now;
      printed = Clock::now();
    }
    process.sleep(0.1);
  }
}

std::vector<Head::Node> Head::nodes() const {
  const std::lock_guard lock(mutex_);
  std::vector<const Member*> joined;
  for (const auto& member : members_) {
    if (member->is_node()) joined.push_back(member.get());
  }
  // Nodes without a rank keep the order in which they have joined.
  std::ranges::stable_sort(joined, {}, [](const Member* member) { return member->hello.rank; });
  std::vector<Node> nodes = {here_};
  if (!joined.empty()) nodes[0].address = joined[0]->head;  // MPICH tells the nodes this address
  for (const Member* member : joined) {
    nodes.push_back({member->address, member->hello.gpus, member->hello.cpus});
  }
  return nodes;
}

bool Head::has_lost_node() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

void Head::write_hosts(int64_t slots) {
  std::string open_mpi, mpich;
  {
    const std::lock_guard lock(mutex_);
    lost_ = false;
    std::vector<std::string> networks = {own_networks()};
    for (const auto& member : members_) {
      if (member->is_node()) networks.push_back(member->hello.networks);
    }
    avoid_networks_of_several(networks);
  }
  for (const Node& node : nodes()) {
    const int64_t own = slots > 0 ? slots : node.gpus > 0 ? node.gpus : node.cpus;
    open_mpi += cat(node.address, " slots=", own, "\n");
    mpich += cat(node.address, ":", own, "\n");
  }
  write_file_atomically(cat(folder_, "/hosts"), open_mpi);
  write_file_atomically(cat(folder_, "/hosts.mpich"), mpich);
}

void Head::finish(int code) {
  const std::lock_guard lock(mutex_);
  if (end_) return;
  end_ = code;
  ended_ = Clock::now();
  for (const auto& member : members_) {
    if (member->joined) member->stream.send(FrameType::kRunEnded, cat(code));
  }
}

}  // namespace shale::models

#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shale/models/tools/join/frame_stream.h"
#include "shale/models/tools/join/socket_address.h"
#include "shale/models/tools/supervision/supervised_process.h"

namespace shale::models {

// Head of a run on nodes that call `shale join`. It waits for their connections, and replaces the
// remote shell with which mpirun or mpiexec starts its daemons on them.
class Head {
 public:
  struct Options {
    int64_t count = 1;       // number of hosts, with this one; if `processes`, number of processes
    bool processes = false;  // count processes, also those that only wait (Hello::waits)
    std::string listen;      // "HOST:PORT", or ":PORT" for all addresses of this host
    double limit_s = 600;    // maximum time until all nodes have joined
  };
  struct Node {
    std::string address = "localhost";
    int64_t gpus = 0;
    int64_t cpus = 0;
  };

  // Starts to listen, and sets the environment variables that make Open MPI and MPICH use this
  // head. Call it after SupervisedProcess has blocked signals, because it starts a thread. Throws
  // ConfigError without a token, UnavailableError if the port is in use.
  explicit Head(const Options& options);
  // If finish() was not called, tells the nodes that the run has ended with kInternal.
  ~Head();
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  // Waits until all nodes have joined, and prints which ones are missing. Returns early if
  // `process` is asked to stop. check: throws if a node that has joined cannot be used. Throws
  // UnavailableError after the limit.
  void wait_for_nodes(SupervisedProcess& process,
                      const std::function<void(const std::vector<Node>&)>& check = {});
  // Returns the nodes that have joined, after this host.
  std::vector<Node> nodes() const;
  // Writes the host file of the launcher. Call it before each start of the launcher. slots: ranks
  // on each node; 0: one per GPU or, without GPUs, per CPU. Throws DiskError.
  void write_hosts(int64_t slots);
  // Returns true if a node has left since write_hosts() was last called.
  bool has_lost_node() const;
  // Ends `shale join` on the nodes with this exit code.
  void finish(int code);

 private:
  struct Member;

  void serve();  // runs in thread_
  void accept_all();
  void hear(Member& member);
  void take(Member& member, const Frame& frame);
  void take_hello(Member& member, const std::string& payload);
  std::string objection(const Member& member) const;
  void start_command(std::unique_ptr<FrameStream> agent, const std::string& payload);
  void complain(const std::string& address, const std::string& why);
  int64_t count() const;
  std::string missing() const;

  const Options options_;
  const std::string token_, build_;
  const Node here_;
  const HostPort at_;
  std::string folder_;
  int listener_ = -1, agents_ = -1;

  mutable std::mutex mutex_;  // guards the members below
  std::vector<std::unique_ptr<Member>> members_;
  // Agents that have not told the name of their node.
  std::vector<std::unique_ptr<FrameStream>> callers_;
  std::set<std::string> complaints_;
  int64_t starts_ = 0;
  bool lost_ = false;
  std::optional<int> end_;  // exit code of the run; empty: it has not ended
  std::chrono::steady_clock::time_point ended_;
  std::thread thread_;
};

// Name of a link to `shale` in the folder of the head's socket. Launchers run it instead of ssh,
// with the host and the words of a command as arguments. It then calls run_agent(), which returns
// the exit code of the command.
inline constexpr char kAgentName[] = "shale-agent";
inline constexpr char kAgentSocket[] = "socket";
int run_agent(int argc, const char* const* argv);

}  // namespace shale::models

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

// Head of a run over nodes that call `shale join`: listens for them, and is the remote shell with
// which mpirun or mpiexec starts its daemons there.
class Head {
 public:
  struct Options {
    int64_t count = 1;       // hosts with this one; with `processes`, processes with this one
    bool processes = false;  // counts also those that only wait (Hello::waits)
    std::string listen;      // "HOST:PORT" or ":PORT", which is all addresses of this host
    double limit_s = 600;    // longest time for the nodes to join
  };
  struct Node {
    std::string address = "localhost";
    int64_t gpus = 0;
    int64_t cpus = 0;
  };

  // Listens from now on, and sets the environment variables by which Open MPI and MPICH use this
  // head. Call it after SupervisedProcess blocked the signals, as a thread serves the nodes. Throws
  // ConfigError without a token, UnavailableError if the port is in use.
  explicit Head(const Options& options);
  // Tells the nodes that the run has ended with kInternal if finish() was not called.
  ~Head();
  Head(const Head&) = delete;
  Head& operator=(const Head&) = delete;

  // Waits until all nodes are there and prints which are missing. Returns early if `process` is
  // asked to stop. check: throws if a node that is there cannot be used. Throws UnavailableError
  // after the limit.
  void wait_for_nodes(SupervisedProcess& process,
                      const std::function<void(const std::vector<Node>&)>& check = {});
  // Returns the nodes that are there; this host comes first.
  std::vector<Node> nodes() const;
  // Writes the host file for the launcher, before each of its starts. slots: ranks on each node; 0:
  // one for each GPU, or CPU. Throws DiskError.
  void write_hosts(int64_t slots);
  // Returns true if a node has left since write_hosts() was last called.
  bool has_lost_node() const;
  // Ends `shale join` on the nodes with this exit code.
  void finish(int code);

 private:
  struct Member;

  void serve();  // body of the thread
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

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<FrameStream>> callers_;  // agents that have not named their node
  std::set<std::string> complaints_;
  int64_t starts_ = 0;
  bool lost_ = false;
  std::optional<int> end_;  // exit code of the run, which is over
  std::chrono::steady_clock::time_point ended_;
  std::thread thread_;
};

// Name of a link to `shale` in the folder of the head's socket. Launchers run it in place of ssh:
// argv[0] is the link's path, and the host and the words of a command follow. run_agent() returns
// the exit code of the command.
inline constexpr char kAgentName[] = "shale-agent";
inline constexpr char kAgentSocket[] = "socket";
int run_agent(int argc, const char* const* argv);

}  // namespace shale::models

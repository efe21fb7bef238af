#pragma once

#include <set>
#include <string>

#include "shale/models/tools/supervision/launch_command.h"

namespace shale::models {

// Chooses the hosts of a command that can run it: those that answer and have no broken GPU.
class LiveHosts {
 public:
  explicit LiveHosts(double probe_timeout_s);  // time for a host to answer
  ~LiveHosts();
  LiveHosts(const LiveHosts&) = delete;
  LiveHosts& operator=(const LiveHosts&) = delete;

  // Remembers the hosts whose GPU failed, by the run's last message.
  void note_broken_gpus(const std::string& message);
  // Keeps only the hosts that can run the command, and says which ones cannot. Throws
  // UnavailableError if there are none.
  void drop_others(LaunchCommand& command) const;

 private:
  bool is_broken(const std::string& host) const;
  // Returns true if the host responds. If the host has no given slots, sets them to its number of
  // cores, as mpirun would.
  bool answers(const LaunchCommand& command, LaunchHost& host) const;

  double probe_timeout_s_;
  std::string host_file_;  // temporary, replaces the command's
  std::set<std::string> broken_;
};

}  // namespace shale::models

#pragma once

#include <set>
#include <string>

#include "shale/models/tools/supervision/launch_command.h"

namespace shale::models {

// Chooses the hosts on which a command can run: those that respond and have no broken GPU.
class LiveHosts {
 public:
  explicit LiveHosts(double probe_timeout_s);  // time for a host to answer
  ~LiveHosts();
  LiveHosts(const LiveHosts&) = delete;
  LiveHosts& operator=(const LiveHosts&) = delete;

  // Remembers the hosts on which GPUs failed according to `message`, the last message of the run.
  void note_broken_gpus(const std::string& message);
  // Removes the hosts on which the command cannot run, and prints their names. Throws
  // UnavailableError if no host is left.
  void drop_others(LaunchCommand& command) const;

 private:
  bool is_broken(const std::string& host) const;
  // Returns true if the host responds. If the host has no given slots, sets them to its number of
  // cores, as mpirun would.
  bool answers(const LaunchCommand& command, LaunchHost& host) const;

  double probe_timeout_s_;
  std::string host_file_;  // temporary file that replaces the command's host file
  std::set<std::string> broken_;
};

}  // namespace shale::models

#pragma once

#include <cstdint>

#include "shale/models/tools/join/socket_address.h"

namespace shale::models {

struct NodeOptions {
  HostPort head;
  double limit_s = 600;  // maximum time to wait for the head, at first or after a lost connection
  int64_t rank = -1;     // rank in the launcher's variables; -1: none
  bool waits = false;    // runs no ranks, because another process represents this host
};

// Joins a run: connects to its head, and runs what the launcher starts on this host until the run
// ends. Returns the exit code of the run, or 75 if a signal came while no run was going on. Throws
// ConfigError if the head refuses this node, UnavailableError after the limit.
int run_node(const NodeOptions& options);

}  // namespace shale::models

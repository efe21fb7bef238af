#pragma once

#include <cstdint>

#include "shale/models/tools/join/socket_address.h"

namespace shale::models {

struct NodeOptions {
  HostPort head;
  double limit_s = 600;  // longest time to wait for the head, at first and when it has gone
  int64_t rank = -1;     // from the launcher's variables; -1: none
  bool waits = false;    // runs nothing: another process represents this host
};

// Joins a run: connects to its head and runs what the launcher starts on this host, until the run
// ends. Returns the exit code of the run, or 75 after a signal without a run. Throws ConfigError if
// the head refuses this node, UnavailableError after the limit.
int run_node(const NodeOptions& options);

}  // namespace shale::models

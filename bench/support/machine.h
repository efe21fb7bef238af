#pragma once

#include <cstdint>
#include <string>

#include "shale/bench/support/json_text.h"

namespace shale::bench {

// Machine and software of a measurement.
struct Machine {
  std::string cpu;  // model name
  int cores = 0;    // CPUs online
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  // last level; 0: unknown
  std::string gpu{};        // name, multiprocessors, memory; empty: not used
  std::string cuda{};       // versions of runtime and driver
  std::string system;       // kernel and its version
  std::string compiler;
  std::string onednn{};  // version; empty: not used
  std::string cudnn{};   // SHALE_CUDNN: "off" or a library; empty: default
  std::string date;      // UTC, 2024-05-01T12:00:00Z
  double load = 0;       // runnable processes over the last minute; 0 on an idle machine
};

// Describes the host; programs add GPU and libraries.
Machine describe_machine();
JsonText machine_json(const Machine& machine);
// Returns "AMD EPYC, 2 CPUs, 23 GiB, load 0.1", for a heading.
std::string summary(const Machine& machine);

}  // namespace shale::bench

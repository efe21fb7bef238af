#pragma once

#include <cstdint>
#include <string>

#include "shale/bench/support/json_text.h"

namespace shale::bench {

// Where and with what numbers were measured.
struct Machine {
  std::string cpu;  // the model's name
  int cores = 0;    // CPUs online
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  // last level; 0: unknown
  std::string gpu{};        // name, multiprocessors, memory; empty: not used
  std::string cuda{};       // versions of runtime and driver
  std::string system;       // kernel and its version
  std::string compiler;
  std::string onednn{};  // version; empty: not used
  std::string cudnn{};   // SHALE_CUDNN: "off", a library; empty: what there is
  std::string date;      // UTC, 2024-05-01T12:00:00Z
  double load = 0;       // runnable processes over the last minute: 0 on a quiet machine
};

// Describes the host; programs add what else they measure with: GPU, libraries.
Machine describe_machine();
JsonText machine_json(const Machine& machine);
// "AMD EPYC, 2 CPUs, 23 GiB, load 0.1": for a heading.
std::string summary(const Machine& machine);

}  // namespace shale::bench

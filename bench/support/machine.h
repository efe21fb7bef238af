#pragma once

#include <cstdint>
#include <string>

#include "shale/bench/support/json_text.h"

namespace shale::bench {

// The machine and software of a measurement.
struct Machine {
  std::string cpu;  // model name of the CPU
  int cores = 0;    // number of CPUs online
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  // bytes of the last-level cache; 0: unknown
  std::string gpu{};        // name, multiprocessors, memory; empty: no GPU is used
  std::string cuda{};       // versions of CUDA's runtime and driver
  std::string system;       // operating system kernel and its version
  std::string compiler;
  std::string onednn{};  // version of oneDNN; empty: not used
  std::string cudnn{};   // value of SHALE_CUDNN: "off" or a library; empty: default
  std::string date;      // date and time in UTC, such as 2024-05-01T12:00:00Z
  double load = 0;       // runnable processes over the last minute; 0 on an idle machine
};

// Describes the host; programs add the GPU and libraries.
Machine describe_machine();
JsonText machine_json(const Machine& machine);
// Returns a text for a heading, such as "AMD EPYC, 2 CPUs, 23 GiB, load 0.1".
std::string summary(const Machine& machine);

}  // namespace shale::bench

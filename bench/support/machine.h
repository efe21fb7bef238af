#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

namespace shale::bench {

using Json = nlohmann::ordered_json;

// Where and with what numbers were measured.
struct Machine {
  std::string cpu;   // the model's name
  int cores = 0;     // CPUs online
  int64_t memory_bytes = 0;
  int64_t cache_bytes = 0;  // last level; 0: unknown
  std::string system;       // kernel and its version
  std::string compiler;
  std::string onednn;
  std::string date;         // UTC, 2024-05-01T12:00:00Z
  double load = 0;          // runnable processes over the last minute: 0 on a quiet machine
};

Machine describe_machine();
Json machine_json(const Machine& machine);
// "AMD EPYC, 2 CPUs, 23 GiB, load 0.1": for a heading.
std::string summary(const Machine& machine);

// Writes {"program", "machine", "options", "rows"}, if path is not empty.
void write_results(const std::string& path, const std::string& program, const Machine& machine,
                   const Json& options, const Json& rows);

}  // namespace shale::bench

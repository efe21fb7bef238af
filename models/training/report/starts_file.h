#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::models {

// Start of a run: its first start, or a resume.
struct RunStart {
  int64_t step = 0;  // optimizer steps done before this start
  int ranks = 1;
  std::string time;         // as returned by utc_now()
  // Device of every rank, "cpu" or "cuda 9.0"; empty: the line's version of Shale did not store it.
  std::string device = {};
  // Elements of all parameters; 0: the line's version of Shale did not store it.
  int64_t parameters = 0;

  friend bool operator==(const RunStart&, const RunStart&) = default;
};

// Adds a start to the file. Replaces the file atomically; creates it if it does not exist. Throws
// DiskError, and DataError as read_starts() does.
void add_start(const std::string& path, const RunStart& start);

// Reads the starts, one line of JSON each, in order. Returns nothing if the file does not exist.
// Throws DataError with path and line.
std::vector<RunStart> read_starts(const std::string& path);

}  // namespace shale::models

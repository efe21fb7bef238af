#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::models {

// A start of a run: the first, and one for each time that it went on.
struct RunStart {
  int64_t step = 0;  // optimizer steps done before
  int ranks = 1;
  std::string time;  // as utc_now()

  friend bool operator==(const RunStart&, const RunStart&) = default;
};

// Adds a start to the file, which is replaced as a whole; makes it if there is none. Throws
// DiskError, DataError as read_starts().
void add_start(const std::string& path, const RunStart& start);

// A line of JSON each, in order. Nothing if there is no such file. Throws DataError with path and
// line.
std::vector<RunStart> read_starts(const std::string& path);

}  // namespace shale::models

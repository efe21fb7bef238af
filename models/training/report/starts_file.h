#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::models {

// A start of a run: the first start, or a resume.
struct RunStart {
  int64_t step = 0;  // optimizer steps done before this start
  int ranks = 1;
  std::string time;         // as returned by utc_now()
  std::string device = {};  // of every rank: "cpu", "cuda 9.0"; empty: older line without it
  int64_t parameters = 0;   // elements of all parameters of the model; 0: line of an older version

  friend bool operator==(const RunStart&, const RunStart&) = default;
};

// Adds a start to the file, which is replaced atomically and created if missing. Throws DiskError,
// and DataError as read_starts() does.
void add_start(const std::string& path, const RunStart& start);

// Reads the starts, one line of JSON each, in order. Returns nothing if the file does not exist.
// Throws DataError with path and line.
std::vector<RunStart> read_starts(const std::string& path);

}  // namespace shale::models

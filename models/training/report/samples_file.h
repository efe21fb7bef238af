#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace shale::models {

// A text that a run has made.
struct Sample {
  int64_t step = 0;  // optimizer steps done
  std::string tag;   // "samples/end"
  std::string text;

  friend bool operator==(const Sample&, const Sample&) = default;
};

// Texts of a run, a line of JSON each, in the order in which they were made. The file is replaced
// as a whole with each of them, so that none is cut off; there is no file before the first.
class SamplesFile {
 public:
  // A run that goes on after `first_step` steps drops what came after them; 0: the run begins, and
  // there is no such file. Throws DiskError, DataError for a line that is none of ours.
  SamplesFile(std::string path, int64_t first_step);

  // In place of one with the same step and tag, as a run leaves that goes on where it has ended.
  // Returns whether it is new. Throws DiskError.
  bool write(const Sample& sample);

 private:
  void replace() const;

  const std::string path_;
  std::vector<Sample> samples_;
};

// Nothing if there is no such file. A last line without an end is left out. Throws DataError with
// path and line.
std::vector<Sample> read_samples(const std::string& path);

}  // namespace shale::models

#include "shale/models/training/report/samples_file.h"

#include <algorithm>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/training/report/json_lines.h"
#include "shale/runtime/io/atomic_file.h"

namespace shale::models {
namespace {

std::string line_of(const Sample& sample) {
  const Json json = {{"step", sample.step}, {"tag", sample.tag}, {"text", sample.text}};
  return json.dump() + "\n";
}

}  // namespace

SamplesFile::SamplesFile(std::string path, int64_t first_step)
    : path_(std::move(path)), samples_(read_samples(path_)) {
  const auto dropped = std::erase_if(
      samples_, [first_step](const Sample& sample) { return sample.step > first_step; });
  if (dropped > 0) replace();
}

bool SamplesFile::write(const Sample& sample) {
  const auto same = std::find_if(samples_.begin(), samples_.end(), [&](const Sample& other) {
    return other.step == sample.step && other.tag == sample.tag;
  });
  // Compares encoded lines, because invalid UTF-8 changes when it is written and read back.
  if (same != samples_.end() && line_of(*same) == line_of(sample)) return false;
  if (same != samples_.end()) samples_.erase(same);
  samples_.push_back(sample);
  replace();
  return true;
}

void SamplesFile::replace() const {
  std::string text;
  for (const Sample& sample : samples_) text += line_of(sample);
  write_file_atomically(path_, text);
}

std::vector<Sample> read_samples(const std::string& path) {
  std::vector<Sample> samples;
  for_each_line(path, [&](const JsonObject& line) {
    samples.push_back({line.integer("step"), line.text("tag"), line.text("text")});
  });
  return samples;
}

}  // namespace shale::models

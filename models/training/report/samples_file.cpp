#include "shale/models/training/report/samples_file.h"

#include <algorithm>
#include <filesystem>
#include <utility>

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

SamplesFile::SamplesFile(std::string path, int64_t first_step) : path_(std::move(path)) {
  std::vector<Sample> samples = read_samples(path_);
  std::erase_if(samples, [first_step](const Sample& one) { return one.step > first_step; });
  // Rewrites the file, which also drops a last line that a killed run left incomplete.
  if (std::filesystem::exists(path_)) replace(samples);
  for (Sample& sample : samples) {
    if (sample.step == first_step) newest_.push_back(std::move(sample));
  }
}

bool SamplesFile::write(const Sample& sample) {
  std::erase_if(newest_, [&](const Sample& other) { return other.step != sample.step; });
  const auto has_tag = [&](const Sample& other) {
    return other.step == sample.step && other.tag == sample.tag;
  };
  const auto same = std::ranges::find_if(newest_, has_tag);
  // Compares encoded lines, because invalid UTF-8 changes when it is written and read back.
  if (same != newest_.end() && line_of(*same) == line_of(sample)) return false;
  if (same != newest_.end()) {
    newest_.erase(same);
    std::vector<Sample> others = read_samples(path_);
    std::erase_if(others, has_tag);
    replace(others);
  }
  newest_.push_back(sample);
  if (file_ == nullptr) file_ = std::make_unique<AppendFile>(path_);
  file_->write(line_of(sample));
  return true;
}

void SamplesFile::replace(const std::vector<Sample>& samples) {
  file_.reset();
  std::string text;
  for (const Sample& sample : samples) text += line_of(sample);
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

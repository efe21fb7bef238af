#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "shale/base/protobuf.h"
#include "shale/models/training/report/metrics.h"
#include "shale/runtime/data/images/image.h"
#include "shale/runtime/io/append_file.h"

namespace shale::models {

// Names of options, and what they hold as JSON.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

// How many values lie in which range.
struct Histogram {
  double least = 0;
  double most = 0;
  double count = 0;
  double sum = 0;
  double sum_of_squares = 0;
  std::vector<double> right_edges;  // rising; a bucket begins where the one before ends
  std::vector<double> counts;       // as many
};

// What a run tells TensorBoard: event files in a folder of the run's own, one of each start. What
// is written is with the system at once, as one record; the format is in runtime/io/event_file.h.
//
// A run that goes on after step N drops from the files that are there what came after it, as
// metrics.jsonl is cut, and its own file begins by saying that it starts at step N + 1, upon which
// a TensorBoard that has shown the dropped points takes them away.
class TensorBoardWriter {
 public:
  struct Options {
    std::string folder;  // is made
    // Steps done by a run that goes on in this folder. 0: the run begins, and a folder that is
    // there is renamed to "<folder>.1", or the first such number that is free.
    int64_t first_step = 0;
    OptionValues options = {};  // shown as hyper-parameters
  };
  // Throws DiskError.
  explicit TensorBoardWriter(const Options& options);

  // Scalars of all that is known, with tags such as "train/loss" (docs/tensorboard.md). Values are
  // single precision there.
  void write(const MetricsRow& row);
  // A text that is shown as it is, bytes that are no UTF-8 replaced. Tags are "group/name".
  void write_text(int64_t step, const std::string& tag, std::string_view text);
  void write_histogram(int64_t step, const std::string& tag, const Histogram& histogram);
  // As a PNG file. Throws UnavailableError in builds without libpng.
  void write_image(int64_t step, const std::string& tag, const Image& picture);
  // The run's end after `step` steps, for the table of hyper-parameters. Goes on with the next
  // start of the run, which takes it back.
  void end(int64_t step, bool succeeded);
  void sync() { file_->sync(); }

 private:
  void start(int64_t first_step);
  void write_options(const OptionValues& options);
  void write_event(int64_t step, uint32_t field, const ProtoMessage& value);

  std::unique_ptr<AppendFile> file_;
};

}  // namespace shale::models

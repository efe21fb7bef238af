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

// Option names, with their values as JSON.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

// TensorBoard output of a run: event files in the run's folder, one per start. Each record is
// passed to the operating system immediately. runtime/io/event_file.h describes the format.
//
// A run resumed after step N removes later events from the existing files, as in metrics.jsonl. Its
// own file begins with a start event at step N + 1, so that a running TensorBoard removes these
// points too.
class TensorBoardWriter {
 public:
  struct Options {
    std::string folder;  // folder of the event files; created if missing
    // Steps done by a run that is resumed in this folder. 0: a new run; an existing folder is
    // renamed to "<folder>.1", or the first free number.
    int64_t first_step = 0;
    OptionValues options = {};  // options of the run, shown as hyper-parameters
  };
  // Throws DiskError.
  explicit TensorBoardWriter(const Options& options);

  // Writes all known values as scalars in single precision, with tags such as "loss/train"
  // (docs/howto/watch.md).
  void write(const MetricsRow& row);
  // Writes a text verbatim, with invalid UTF-8 replaced. Tags have the form "group/name".
  void write_text(int64_t step, const std::string& tag, std::string_view text);
  // Writes a PNG. Throws UnavailableError in builds without libpng.
  void write_image(int64_t step, const std::string& tag, const Image& picture);
  // Records the run's end after `step` steps in the table of hyper-parameters. A resumed run
  // removes this record.
  void end(int64_t step, bool succeeded);
  void sync() { file_->sync(); }

 private:
  void start(int64_t first_step);
  void write_options(const OptionValues& options);
  void write_event(int64_t step, uint32_t field, const ProtoMessage& value);

  std::unique_ptr<AppendFile> file_;
};

}  // namespace shale::models

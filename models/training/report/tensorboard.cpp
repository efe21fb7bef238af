#include "shale/models/training/report/tensorboard.h"

#include <unistd.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "shale/base/error.h"
#include "shale/base/host_name.h"
#include "shale/base/json.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/io/event_file.h"
#include "shale/runtime/io/file.h"

namespace shale::models {
namespace {

namespace fs = std::filesystem;

// Field numbers of protocol buffer messages: tensorflow/core/util/event.proto,
// framework/summary.proto, framework/tensor.proto and
// tensorboard/plugins/hparams/plugin_data.proto.
namespace event {
constexpr uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace session_log {
constexpr uint32_t kStatus = 1;
constexpr int64_t kStart = 1;
}  // namespace session_log
namespace summary {
constexpr uint32_t kValue = 1;
}
namespace value {
constexpr uint32_t kTag = 1, kSimpleValue = 2, kImage = 4, kTensor = 8;
constexpr uint32_t kMetadata = 9;
}  // namespace value
namespace image {
constexpr uint32_t kRows = 1, kCols = 2, kColors = 3, kFile = 4;
}
namespace metadata {
constexpr uint32_t kPluginData = 1, kDataClass = 4;
constexpr uint32_t kPluginName = 1, kContent = 2;  // fields of the message in kPluginData
constexpr int64_t kTensorClass = 2;
}  // namespace metadata
namespace tensor {
constexpr uint32_t kDType = 1, kShape = 2, kStrings = 8;
constexpr uint32_t kDim = 2, kSize = 1;  // kDim of a shape, kSize of a dimension
constexpr int64_t kString = 7;
}  // namespace tensor
namespace hparams {
constexpr uint32_t kExperiment = 2, kSessionStart = 3, kSessionEnd = 4;
constexpr uint32_t kExperimentTime = 3, kInfos = 4, kMetrics = 5;
constexpr uint32_t kInfoName = 1, kInfoType = 4;
constexpr uint32_t kMetricName = 1, kMetricTag = 2, kMetricDataset = 5;
constexpr int64_t kTypeString = 1, kTypeBool = 2, kTypeFloat = 3;
constexpr int64_t kTraining = 1, kValidation = 2;
constexpr uint32_t kStartValues = 1, kStartTime = 5, kKey = 1, kMapValue = 2;
constexpr uint32_t kDouble = 2, kString = 3, kBool = 4;
constexpr uint32_t kEndStatus = 1, kEndTime = 2;
constexpr int64_t kSuccess = 1, kFailure = 2;
}  // namespace hparams

double unix_seconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

// Collects the scalars of one step in a summary.
class Scalars {
 public:
  void add(const std::string& tag, std::optional<double> number) {
    if (!number) return;
    summary_.message(summary::kValue,
                     ProtoMessage()
                         .text(value::kTag, tag)
                         .real32(value::kSimpleValue, static_cast<float>(*number)));
  }
  void add(const std::string& tag, std::optional<int64_t> number) {
    if (number) add(tag, std::optional(static_cast<double>(*number)));
  }
  const ProtoMessage& summary() const { return summary_; }

 private:
  ProtoMessage summary_;
};

Scalars scalars_of(const StepMetrics& m) {
  Scalars scalars;
  scalars.add("loss/train", std::optional(double{m.loss}));
  scalars.add("train/grad_norm", m.grad_norm);
  scalars.add("train/lr", m.lr);
  scalars.add("train/" + m.item, m.items);
  scalars.add("train/loss_scale", m.loss_scale);
  scalars.add("train/skipped_steps", m.skipped_steps);
  scalars.add("train/outlier_steps", m.outlier_steps);
  if (m.experts) {
    scalars.add("moe/tokens_min", std::optional(m.experts->tokens_min));
    scalars.add("moe/tokens_mean", std::optional(m.experts->tokens_mean));
    scalars.add("moe/tokens_max", std::optional(m.experts->tokens_max));
    scalars.add("moe/dropped_share", std::optional(m.experts->dropped_share));
  }
  scalars.add("speed/" + m.item + "_per_s", m.items_per_s);
  scalars.add("speed/step_ms", m.step_ms);
  scalars.add("speed/comm_exposed_ms", m.comm_exposed_ms);
  scalars.add("speed/data_wait_ms", m.data_wait_ms);
  scalars.add("speed/mfu", m.mfu);
  scalars.add("memory/device_peak_bytes", m.device_peak_bytes);
  scalars.add("memory/host_peak_bytes", m.host_peak_bytes);
  return scalars;
}

Scalars scalars_of(const EvalMetrics& m) {
  Scalars scalars;
  scalars.add("loss/validation", std::optional(double{m.val_loss}));
  scalars.add("loss/validation_ema", m.ema_val_loss);
  for (const auto& [k, share] : m.top_k) {
    scalars.add(cat("accuracy/top", k), std::optional(share));
  }
  scalars.add("validation/" + m.item, m.items);
  scalars.add("validation/ms", m.ms);
  return scalars;
}

Scalars scalars_of(const RanksMetrics& m) {
  Scalars scalars;
  for (const auto& [name, spread] : m.figures) {
    if (!spread) continue;
    scalars.add(cat("ranks/", name, "_min"), std::optional(spread->least));
    scalars.add(cat("ranks/", name, "_median"), std::optional(spread->median));
    scalars.add(cat("ranks/", name, "_max"), std::optional(spread->most));
  }
  return scalars;
}

ProtoMessage plugin_metadata(std::string_view plugin, const ProtoMessage& content) {
  ProtoMessage data;
  data.text(metadata::kPluginName, plugin);
  if (!content.bytes().empty()) data.message(metadata::kContent, content);
  return ProtoMessage().message(metadata::kPluginData, data);
}

// Returns a summary value for the hyper-parameter table. It has only metadata.
ProtoMessage hparams_summary(std::string_view what, uint32_t field, const ProtoMessage& content) {
  const ProtoMessage data = ProtoMessage().message(field, content);
  return ProtoMessage().message(summary::kValue,
                                ProtoMessage()
                                    .text(value::kTag, cat("_hparams_/", what))
                                    .message(value::kMetadata, plugin_metadata("hparams", data)));
}

ProtoMessage experiment(double now, const OptionValues& options) {
  ProtoMessage all;
  all.real(hparams::kExperimentTime, now);
  for (const auto& [name, json] : options) {
    const Json value = Json::parse(json, {}, name);
    const int64_t type = value.is_boolean()  ? hparams::kTypeBool
                         : value.is_number() ? hparams::kTypeFloat
                                             : hparams::kTypeString;
    all.message(hparams::kInfos,
                ProtoMessage().text(hparams::kInfoName, name).integer(hparams::kInfoType, type));
  }
  for (const auto& [tag, dataset] : {std::pair{"loss/train", hparams::kTraining},
                                     std::pair{"loss/validation", hparams::kValidation}}) {
    // Encodes a metric's name, which consists of a tag and an empty group.
    const ProtoMessage name = ProtoMessage().text(hparams::kMetricTag, tag);
    all.message(hparams::kMetrics, ProtoMessage()
                                       .message(hparams::kMetricName, name)
                                       .integer(hparams::kMetricDataset, dataset));
  }
  return all;
}

ProtoMessage session_start(double now, const OptionValues& options) {
  ProtoMessage start;
  for (const auto& [name, json] : options) {
    const Json value = Json::parse(json, {}, name);
    ProtoMessage held;
    if (value.is_boolean()) {
      held.integer(hparams::kBool, value.boolean());
    } else if (value.is_number()) {
      held.real(hparams::kDouble, value.real());
    } else {
      held.text(hparams::kString, value.is_string() ? value.text() : value.dump());
    }
    start.message(hparams::kStartValues,
                  ProtoMessage().text(hparams::kKey, name).message(hparams::kMapValue, held));
  }
  return start.real(hparams::kStartTime, now);
}

// Returns the text as a Markdown code block, which keeps line breaks and has fixed width. Replaces
// invalid UTF-8.
std::string preformatted(std::string_view text) {
  std::string lines = "    ";
  for (const char c : text) {
    lines += c;
    if (c == '\n') lines += "    ";
  }
  return Json::parse(json_quote(lines), {.max_bytes = INT64_MAX}, "text").text();
}

void set_aside(const std::string& folder) {
  if (!fs::exists(folder)) return;
  std::string kept;
  for (int i = 1; kept.empty() || fs::exists(kept); ++i) kept = cat(folder, ".", i);
  std::error_code error;
  fs::rename(folder, kept, error);
  if (error) {
    throw DiskError(cat("output: cannot rename ", folder, " to ", kept, ": ", error.message()));
  }
}

// Returns the path of a new file "events.out.tfevents.<time>.<host>.<process>.<n>". Readers sort
// files by name.
std::string new_file(const std::string& folder) {
  for (int n = 0;; ++n) {
    const std::string path =
        file_in(folder, cat("events.out.tfevents.", static_cast<int64_t>(unix_seconds()), ".",
                            host_name(), ".", getpid(), ".", n));
    if (!fs::exists(path)) return path;
  }
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(const Options& options) {
  if (options.first_step > 0) {
    drop_events_after(options.folder, options.first_step);
  } else {
    set_aside(options.folder);
  }
  const bool has_options = fs::exists(options.folder);
  Folder::make(options.folder);
  file_ = std::make_unique<AppendFile>(new_file(options.folder));
  start(options.first_step);
  if (!has_options) write_options(options.options);
}

void TensorBoardWriter::start(int64_t first_step) {
  file_->write(event_record(ProtoMessage()
                                .real(event::kWallTime, unix_seconds())
                                .text(event::kFileVersion, "brain.Event:2")
                                .bytes()));
  // TensorBoard ignores the first start event that it sees, and obeys later ones. So files of a run
  // that was never resumed need a start event too.
  write_event(first_step > 0 ? first_step + 1 : 0, event::kSessionLog,
              ProtoMessage().integer(session_log::kStatus, session_log::kStart));
}

void TensorBoardWriter::write_options(const OptionValues& options) {
  if (options.empty()) return;
  const double now = unix_seconds();
  write_event(0, event::kSummary,
              hparams_summary("experiment", hparams::kExperiment, experiment(now, options)));
  write_event(
      0, event::kSummary,
      hparams_summary("session_start_info", hparams::kSessionStart, session_start(now, options)));
}

void TensorBoardWriter::write_event(int64_t step, uint32_t field, const ProtoMessage& value) {
  ProtoMessage message;
  message.real(event::kWallTime, unix_seconds());
  if (step != 0) message.integer(event::kStep, step);
  file_->write(event_record(message.message(field, value).bytes()));
}

void TensorBoardWriter::write(const MetricsRow& row) {
  std::visit(
      [this](const auto& metrics) {
        write_event(metrics.step, event::kSummary, scalars_of(metrics).summary());
      },
      row);
}

void TensorBoardWriter::write_text(int64_t step, const std::string& tag, std::string_view text) {
  ProtoMessage shape;
  shape.message(tensor::kDim, ProtoMessage().integer(tensor::kSize, 1));
  ProtoMessage held;
  held.integer(tensor::kDType, tensor::kString)
      .message(tensor::kShape, shape)
      .text(tensor::kStrings, preformatted(text));
  ProtoMessage about = plugin_metadata("text", {});
  about.integer(metadata::kDataClass, metadata::kTensorClass);
  write_event(step, event::kSummary,
              ProtoMessage().message(summary::kValue, ProtoMessage()
                                                          .text(value::kTag, tag + "/text_summary")
                                                          .message(value::kTensor, held)
                                                          .message(value::kMetadata, about)));
}

void TensorBoardWriter::write_image(int64_t step, const std::string& tag, const Image& picture) {
  const std::vector<std::byte> file = encode_png(picture, tag);
  ProtoMessage held;
  held.integer(image::kRows, picture.rows)
      .integer(image::kCols, picture.cols)
      .integer(image::kColors, picture.channels)
      .text(image::kFile,
            std::string_view(reinterpret_cast<const char*>(file.data()), file.size()));
  write_event(step, event::kSummary,
              ProtoMessage().message(
                  summary::kValue,
                  ProtoMessage().text(value::kTag, tag).message(value::kImage, held)));
}

void TensorBoardWriter::end(int64_t step, bool succeeded) {
  ProtoMessage status;
  status.integer(hparams::kEndStatus, succeeded ? hparams::kSuccess : hparams::kFailure)
      .real(hparams::kEndTime, unix_seconds());
  // The event has the step after the last row, so that a run resumed at any step removes it.
  write_event(step + 1, event::kSummary,
              hparams_summary("session_end_info", hparams::kSessionEnd, status));
}

}  // namespace shale::models

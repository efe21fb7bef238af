#include "shale/models/training/report/run_status.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/models/training/output_folder.h"
#include "shale/runtime/io/atomic_file.h"
#include "shale/runtime/io/json_object.h"

namespace shale::models {
namespace {

constexpr std::array kNames = {"running", "saved", "done", "failed"};

std::string status_file(const std::string& out) {
  return file_in(out, "status.json");
}

// Overwrites the file in place if the text fits into its existing blocks. Returns false if it does
// not. Not atomic, so it is used only after the atomic replacement has failed.
bool overwrite(const std::string& path, const std::string& text) {
  const FileHandle file(open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info {};
  const auto bytes = static_cast<ssize_t>(text.size());
  return file.is_open() && fstat(file.get(), &info) == 0 && S_ISREG(info.st_mode) &&
         pwrite(file.get(), text.data(), text.size(), 0) == bytes &&
         ftruncate(file.get(), bytes) == 0 && fsync(file.get()) == 0;
}

}  // namespace

void write_run_status(const std::string& out, const RunStatus& status) {
  Json json;
  json["state"] = kNames[static_cast<size_t>(status.state)];
  json["step"] = status.step;
  json["checkpoint_step"] = nullptr;
  if (status.checkpoint_step) json["checkpoint_step"] = *status.checkpoint_step;
  json["checkpoint"] = status.checkpoint;
  json["exit_code"] = nullptr;
  if (status.exit_code) json["exit_code"] = *status.exit_code;
  json["message"] = status.message;
  const std::string text = json.dump(2) + "\n";
  const std::string path = status_file(out);
  try {
    write_file_atomically(path, text);
  } catch (const DiskError&) {
    // Even a full disk allows overwriting existing bytes.
    if (!overwrite(path, text)) throw;
  }
}

RunStatus read_run_status(const std::string& out) {
  const JsonObject json = JsonObject::load(status_file(out));
  RunStatus status;
  const std::string state = json.text("state");
  size_t index = 0;
  while (index < kNames.size() && state != kNames[index]) ++index;
  if (index == kNames.size()) json.fail("state", "running, saved, done or failed");
  status.state = static_cast<RunState>(index);
  status.step = json.integer("step");
  if (json.has("checkpoint_step")) status.checkpoint_step = json.integer("checkpoint_step");
  status.checkpoint = json.text("checkpoint");
  if (json.has("exit_code")) status.exit_code = static_cast<int>(json.integer("exit_code"));
  status.message = json.text("message", "");
  return status;
}

}  // namespace shale::models

// Simulates a crash after each disk operation of an export that replaces an earlier one. Afterwards
// the folder contains the old model, the new model, or no model that a reader accepts, but never a
// mixture of their files.

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "shale/base/error.h"
#include "shale/base/text.h"
#include "shale/models/gpt2/hf.h"
#include "shale/runtime/io/file.h"
#include "shale/runtime/io/safetensors.h"
#include "shale/test/faults/crash_model.h"
#include "shale/test/faults/faulty_run.h"
#include "shale/test/support/catch.h"
#include "shale/test/support/temp_dir.h"

namespace shale::test {
namespace {

// Returns the content of all files that define the model, or nothing if a reader refuses the
// folder.
std::optional<std::map<std::string, std::string>> model_in(const std::string& folder) {
  try {
    const HfGpt2Config config = load_gpt2_config(folder);
    const SafetensorsFolder weights(folder);
    std::map<std::string, std::string> model = {{"context", std::to_string(config.context)}};
    for (const auto& [name, tensor] : weights.tensors()) {
      const auto bytes = tensor.bytes();
      model[name].assign(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return model;
  } catch (const DataError&) {
    return std::nullopt;
  } catch (const MissingInputError&) {
    return std::nullopt;
  }
}

// Exports an untrained model in files of at most `file_bytes`. Each seed gives another model.
std::vector<DiskCall> export_model(const TempDir& dir, int seed, const std::string& file_bytes) {
  const std::string program =
      cat(SHALE_TRAIN_LM " --data '", dir.file("text.txt"), "' --out '", dir.file("out"), "_", seed,
          "' --layers 1 --width 32 --heads 2 --seq-len ", 15 + seed,
          " --global-batch 2 --micro-batch 1 --threads 1 --device cpu --steps 0 --no-save --seed ",
          seed, " --export '", dir.file("model"), "' --export-shard-size ", file_bytes);
  const FaultyRun run = run_with_fault({.under = dir.file("model")}, "timeout 60", program);
  CAPTURE(run.errors);
  REQUIRE(run.code == 0);
  return run.calls;
}

}  // namespace

TEST_CASE("a power failure during an export leaves the old model, the new one, or none",
          "[faults]") {
  const auto [before, after] = GENERATE(table<std::string, std::string>({
      {"20KiB", "20KiB"},  // both exports have files of the same names
      {"20KiB", "50KiB"},  // the second export has fewer files
      {"20KiB", "1MiB"},   // the second export is a single file
      {"1MiB", "20KiB"},
      {"1MiB", "1MiB"},
  }));
  CAPTURE(before, after);
  const TempDir dir;
  dir.write("text.txt", std::string(5000, 'x'));
  Folder::make(dir.file("model"));
  CrashModel disk(dir.file("model"));
  for (const DiskCall& call : export_model(dir, 1, before)) disk.apply(call);
  const auto old_model = model_in(dir.file("model"));
  const std::vector<DiskCall> calls = export_model(dir, 2, after);
  const auto new_model = model_in(dir.file("model"));
  REQUIRE(old_model.has_value());
  REQUIRE(new_model.has_value());
  REQUIRE(old_model != new_model);
  std::string problems;
  int found_old = 0, found_new = 0;
  for (size_t count = 0; count <= calls.size(); ++count) {
    if (count > 0) disk.apply(calls[count - 1]);
    for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kNamesKept,
                                    Unsynced::kZeroed, Unsynced::kAny}) {
      const TempDir scratch;
      disk.lay_out(scratch.file("model"), unsynced, count);
      const auto found = model_in(scratch.file("model"));
      if (found == old_model) ++found_old;
      if (found == new_model) ++found_new;
      if (!found || found == old_model || found == new_model) continue;
      problems += cat("after ", count, " calls, state ", static_cast<int>(unsynced), "\n");
    }
  }
  CHECK(problems == "");
  CHECK(found_old > 5);   // the old model is valid until all data of the new one is written
  CHECK(found_new >= 5);  // after the last calls the new model is complete in every state
}

}  // namespace shale::test

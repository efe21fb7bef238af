// shale ckpt: inspects, verifies and converts checkpoints.
#include "shale/models/tools/ckpt.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <functional>

#include "shale/base/error.h"
#include "shale/comm/checkpoint/folder.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/models/language/checkpoint_model.h"
#include "shale/models/tools/tool_table.h"
#include "shale/models/tools/tools.h"

namespace shale::models {

int run_ckpt(int argc, const char* const* argv) {
  static constexpr std::array kActions = {
      Tool{"inspect", "prints what is in a checkpoint", ckpt::run_inspect},
      Tool{"verify", "checks every byte of a checkpoint", ckpt::run_verify},
      Tool{"reshard", "rewrites a checkpoint with another number of files", ckpt::run_reshard},
      Tool{"export", "writes the model of a checkpoint for Hugging Face, PyTorch or llama.cpp",
           ckpt::run_export},
      Tool{"diff", "lists the tensors in which two checkpoints differ", ckpt::run_diff},
  };
  return run_tool({.program = "shale ckpt",
                   .summary = "inspects, verifies and converts checkpoints",
                   .what = "action",
                   .closing = "A checkpoint is a folder\nsuch as out/checkpoints/step_00000100, or "
                              "a run folder; of a run, the newest checkpoint is used.",
                   .tools = kActions},
                  argc, argv);
}

namespace ckpt {

std::string find_checkpoint(const std::string& path) {
  if (const auto newest = newest_checkpoint(path)) return *newest;
  throw MissingInputError(cat(path, ": no checkpoint found; expected a folder with ", kManifestName,
                              ", or the --out folder of a run that has saved"));
}

std::string make_table(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      const std::string space(widths[i] - row[i].size(), ' ');
      line += rows[0][i].ends_with(' ') ? cat("  ", space, row[i]) : cat("  ", row[i], space);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string summary(const CheckpointManifest& manifest) {
  double bytes = 0;
  for (const auto& [name, tensor] : manifest.tensors) bytes += static_cast<double>(tensor.bytes());
  return cat("step ", manifest.step, ", ",
             counted(static_cast<int64_t>(manifest.tensors.size()), "tensor"), ", ",
             format_bytes(bytes), " in ",
             counted(static_cast<int64_t>(manifest.files.size()), "file"));
}

std::string counted(int64_t count, std::string_view what) {
  return cat(count, " ", what, count == 1 ? "" : "s");
}

int run_verify(int argc, const char* const* argv) {
  std::string path;
  bool quiet = false;
  ConfigSpec spec("shale ckpt verify",
                  "checks every byte of a checkpoint: manifest, sizes, checksums, contents and "
                  "tokenizer; exit code 0: valid, 65: damaged, 66: files are missing");
  spec.add_positional("checkpoint", path, "a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add("quiet", quiet, "print only errors");
  spec.example("shale ckpt verify out/checkpoints/step_00000100");
  if (parse_or_print(spec, argc, argv)) return 0;

  CheckpointReader reader(find_checkpoint(path));
  const std::vector<CheckpointFile>& files = reader.manifest().files;
  std::string first_problem;
  int64_t damaged = 0;
  const auto verify = [&](const char* name, const std::function<bool()>& is_there) {
    try {
      if (is_there() && !quiet) std::printf("ok       %s\n", name);
    } catch (const DataError& error) {  // continues, to report the other files too
      if (!quiet) std::printf("damaged  %s\n", name);
      if (damaged++ == 0) first_problem = error.what();
    }
  };
  for (size_t i = 0; i < files.size(); ++i) {
    verify(files[i].name.c_str(), [&] {
      reader.verify_file(i);
      return true;
    });
  }
  verify(kTokenizerFile, [&] { return checkpoint_tokenizer(reader) != nullptr; });
  if (damaged > 0) {
    throw DataError(damaged == 1 ? first_problem
                                 : cat(first_problem, "; and ", counted(damaged - 1, "other file"),
                                       " damaged"));
  }
  if (!quiet) std::printf("%s: %s\n", reader.path().c_str(), summary(reader.manifest()).c_str());
  return 0;
}

}  // namespace ckpt
}  // namespace shale::models

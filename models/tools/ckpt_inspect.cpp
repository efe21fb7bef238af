// shale ckpt inspect and diff: contents of checkpoints.
#include <cmath>
#include <cstdio>

#include "shale/base/error.h"
#include "shale/base/json.h"
#include "shale/base/parse.h"
#include "shale/comm/checkpoint/diff.h"
#include "shale/comm/checkpoint/reader.h"
#include "shale/models/tools/ckpt.h"
#include "shale/models/tools/tool_table.h"

namespace shale::models::ckpt {
namespace {

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) text += cat(i > 0 ? "," : "", shape[i]);
  return text + "]";
}

int64_t parts_of(const CheckpointTensor& tensor) {
  int64_t parts = 0;
  for (const CheckpointTensor::Box& box : tensor.boxes) {
    parts += static_cast<int64_t>(box.parts.size());
  }
  return parts;
}

// Returns the members of a JSON object under a title, one per line.
std::string members(const std::string& title, const std::string& object) {
  std::string text = title + "\n";
  std::vector<std::vector<std::string>> rows = {{"", ""}};
  const Json json = Json::parse(object, {.max_bytes = kMaxManifestBytes}, title);
  for (const auto& [key, value] : json.items()) {
    rows.push_back({excerpt(key), excerpt(value.dump(), 200)});
  }
  return text + make_table(rows).substr(1);  // without the header row
}

std::string page(const CheckpointReader& reader) {
  const CheckpointManifest& manifest = reader.manifest();
  std::string text = cat(reader.path(), "\n", summary(manifest), ", written by ",
                         excerpt(manifest.writer), "\n\n");
  text += members("Training state", manifest.state) + "\n";
  text += members("Run", manifest.config) + "\n";
  std::vector<std::vector<std::string>> files = {{"File", "Bytes ", "Chunks "}};
  for (const CheckpointFile& file : manifest.files) {
    files.push_back(
        {file.name, std::to_string(file.bytes), std::to_string(file.chunk_crcs.size())});
  }
  text += make_table(files) + "\n";
  std::vector<std::vector<std::string>> tensors = {{"Tensor", "Type", "Shape", "Bytes ", "Parts "}};
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.push_back({excerpt(name), std::string(dtype_name(tensor.dtype)),
                       shape_text(tensor.shape), std::to_string(tensor.bytes()),
                       std::to_string(parts_of(tensor))});
  }
  return text + make_table(tensors);
}

std::string json_page(const CheckpointReader& reader) {
  const CheckpointManifest& manifest = reader.manifest();
  Json files = Json::array();
  for (const CheckpointFile& file : manifest.files) {
    files.push_back(
        {{"name", file.name}, {"bytes", file.bytes}, {"chunks", file.chunk_crcs.size()}});
  }
  Json::Object tensors;
  for (const auto& [name, tensor] : manifest.tensors) {
    tensors.emplace_back(name, Json{{"dtype", dtype_name(tensor.dtype)},
                                    {"shape", tensor.shape},
                                    {"bytes", tensor.bytes()},
                                    {"parts", parts_of(tensor)}});
  }
  const JsonLimits limits{.max_bytes = kMaxManifestBytes};
  const Json object = {{"path", reader.path()},
                       {"step", manifest.step},
                       {"writer", manifest.writer},
                       {"state", Json::parse(manifest.state, limits, "state")},
                       {"config", Json::parse(manifest.config, limits, "config")},
                       {"chunk_bytes", manifest.chunk_bytes},
                       {"files", std::move(files)},
                       {"tensors", std::move(tensors)}};
  return object.dump(2) + "\n";
}

std::string text_of(const TensorDifference& difference, const CheckpointReader& first,
                    const CheckpointReader& second) {
  using Kind = TensorDifference::Kind;
  const auto form = [&](const CheckpointReader& reader) {
    const CheckpointTensor& tensor = *reader.find(difference.name);
    return cat(dtype_name(tensor.dtype), shape_text(tensor.shape));
  };
  switch (difference.kind) {
    case Kind::kOnlyInFirst: return "only in the first";
    case Kind::kOnlyInSecond: return "only in the second";
    case Kind::kForm: return cat(form(first), " and ", form(second));
    case Kind::kValues: break;
  }
  return cat(difference.elements, " of ", first.find(difference.name)->numel(),
             " elements, by at most ", format_real(difference.max_abs));
}

Json json_of(const TensorDifference& difference) {
  using Kind = TensorDifference::Kind;
  switch (difference.kind) {
    case Kind::kOnlyInFirst: return {{"name", difference.name}, {"kind", "only_in_first"}};
    case Kind::kOnlyInSecond: return {{"name", difference.name}, {"kind", "only_in_second"}};
    case Kind::kForm: return {{"name", difference.name}, {"kind", "form"}};
    case Kind::kValues: break;
  }
  Json object = {{"name", difference.name},
                 {"kind", "values"},
                 {"elements", difference.elements},
                 {"max_abs", nullptr}};
  if (std::isfinite(difference.max_abs)) object["max_abs"] = difference.max_abs;
  return object;
}

}  // namespace

int run_inspect(int argc, const char* const* argv) {
  std::string path;
  bool as_json = false;
  ConfigSpec spec("shale ckpt inspect",
                  "prints step, training state, options, files and tensors of a checkpoint; checks "
                  "the manifest, but not the data");
  spec.add_positional("checkpoint", path, "a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add("json", as_json, "print a JSON object");
  spec.example("shale ckpt inspect out");
  if (parse_or_print(spec, argc, argv)) return 0;
  const CheckpointReader reader(find_checkpoint(path));
  std::fputs((as_json ? json_page(reader) : page(reader)).c_str(), stdout);
  return 0;
}

int run_diff(int argc, const char* const* argv) {
  std::string first_path, second_path;
  bool as_json = false;
  ConfigSpec spec("shale ckpt diff",
                  "lists the tensors that differ between two checkpoints, whatever their number of "
                  "files; exit code 0: bit-identical, 1: some differ");
  spec.add_positional("first", first_path, "a checkpoint or a run",
                      {.required = true, .is_path = true});
  spec.add_positional("second", second_path, "the checkpoint or run to compare with",
                      {.required = true, .is_path = true});
  spec.add("json", as_json, "print a JSON list; max_abs is null if a value is not finite");
  spec.example("shale ckpt diff out/checkpoints/step_00000100 out/checkpoints/step_00000200");
  if (parse_or_print(spec, argc, argv)) return 0;

  CheckpointReader first(find_checkpoint(first_path));
  CheckpointReader second(find_checkpoint(second_path));
  const std::vector<TensorDifference> differences = diff_checkpoints(first, second);
  if (as_json) {
    Json list = Json::array();
    for (const TensorDifference& difference : differences) list.push_back(json_of(difference));
    std::fputs((list.dump(2) + "\n").c_str(), stdout);
  } else {
    std::vector<std::vector<std::string>> rows = {{"Tensor", "Difference"}};
    for (const TensorDifference& difference : differences) {
      rows.push_back({excerpt(difference.name), text_of(difference, first, second)});
    }
    if (!differences.empty()) std::fputs(make_table(rows).c_str(), stdout);
    std::printf("%s of %zu and %zu differ\n",
                counted(static_cast<int64_t>(differences.size()), "tensor").c_str(),
                first.manifest().tensors.size(), second.manifest().tensors.size());
  }
  return differences.empty() ? 0 : 1;
}

}  // namespace shale::models::ckpt

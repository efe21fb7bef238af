// The input is a manifest without its last line, the checksum. The target adds a valid checksum,
// because random changes would never keep it valid. It also parses the unchanged input.
#include <cstdio>

#include "shale/comm/checkpoint/manifest.h"
#include "shale/comm/checkpoint/reshard.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

std::string with_checksum(std::string_view body) {
  char line[32];
  std::snprintf(line, sizeof line, ",\"crc32c\":\"%08x\"}\n",
                crc32c(std::as_bytes(std::span(body))));
  return std::string(body) + line;
}

// Checks that every element of every tensor is in exactly one part.
void check_parts(const CheckpointManifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    int64_t elements = 0;
    const int64_t numel = tensor.numel();
    for (const CheckpointTensor::Box& box : tensor.boxes) {
      for (const CheckpointTensor::Part& part : box.parts) {
        fuzz::require(part.file >= 0 && static_cast<size_t>(part.file) < manifest.files.size(),
                      "a part is in a file");
        for_each_run(part_of(name, tensor, box, part), 0, tensor.numel(),
                     [&](const TensorRun& run) {
                       fuzz::require(run.count > 0 && run.in_tensor >= 0 && run.in_part >= 0 &&
                                         run.in_tensor + run.count <= numel &&
                                         run.in_part + run.count <= part.count,
                                     "a run is inside its tensor and its part");
                       elements += run.count;
                     });
      }
    }
    fuzz::require(elements == numel, "parts have each element once");
  }
}

bool is_small(const CheckpointManifest& manifest) {
  for (const auto& [name, tensor] : manifest.tensors) {
    // Limits the time that check_parts() takes.
    if (tensor.numel() > 1'000'000) return false;
  }
  return true;
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  const std::string_view body = fuzz::text_of(data, size);
  fuzz::accepts<DataError>([&] { parse_checkpoint_manifest(body, "manifest.json"); });
  CheckpointManifest manifest;
  const auto parse = [&] {
    manifest = parse_checkpoint_manifest(with_checksum(body), "manifest.json");
  };
  if (!fuzz::accepts<DataError>(parse)) return 0;
  if (is_small(manifest)) check_parts(manifest);
  const std::string once = to_json(manifest);
  fuzz::require(to_json(parse_checkpoint_manifest(once, "again")) == once,
                "a manifest that is written again says the same");
  fuzz::accepts<DataError>([&] {
    int64_t elements = 0;
    for (const auto& parts : even_parts(manifest, 3)) {
      for (const TensorPart& part : parts) elements += part.count;
    }
    for (const auto& [name, tensor] : manifest.tensors) elements -= tensor.numel();
    fuzz::require(elements == 0, "cutting into files keeps each element once");
  });
  return 0;
}

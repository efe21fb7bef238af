#include "shale/models/diffusion/sample_files.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "shale/runtime/data/images/image.h"
#include "shale/runtime/io/safetensors_writer.h"

namespace shale::models {
namespace {

constexpr int64_t kGap = 2;  // pixels between the pictures of a grid

uint8_t byte_of(float value) {
  return static_cast<uint8_t>(std::lround(127.5f * (std::clamp(value, -1.f, 1.f) + 1)));
}

int64_t count_of(const Samples& samples) {
  return std::ssize(samples.values) / (samples.pixels * samples.pixels * samples.channels);
}

Image grid_of(const Samples& samples) {
  const int64_t count = count_of(samples), edge = samples.pixels + kGap;
  const auto wide = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(count))));
  const int64_t high = (count + wide - 1) / wide;
  Image grid;
  grid.resize(high * edge + kGap, wide * edge + kGap, 3);
  for (int64_t i = 0; i < count; ++i) {
    const float* from = samples.values.data() + i * samples.pixels * samples.pixels * 3;
    for (int64_t row = 0; row < samples.pixels; ++row) {
      uint8_t* to = grid.at(kGap + i / wide * edge + row, kGap + i % wide * edge);
      std::transform(from, from + 3 * samples.pixels, to, byte_of);
      from += 3 * samples.pixels;
    }
  }
  return grid;
}

void write_latents(const std::string& path, const Samples& samples) {
  const int64_t count = count_of(samples), area = samples.pixels * samples.pixels;
  std::vector<float> planes(samples.values.size());
  for (int64_t i = 0; i < count; ++i) {
    const int64_t begin = i * area * samples.channels;
    for (int64_t at = 0; at < area; ++at) {
      for (int64_t c = 0; c < samples.channels; ++c) {
        planes[static_cast<size_t>(begin + c * area + at)] =
            samples.values[static_cast<size_t>(begin + at * samples.channels + c)];
      }
    }
  }
  const Shape shape{count, samples.channels, samples.pixels, samples.pixels};
  SafetensorsWriter file(
      path, {{.name = "latents", .dtype = DType::kF32, .shape = {shape.begin(), shape.end()}}});
  file.write(make_view(planes.data(), shape));
  file.commit();
}

}  // namespace

void write_samples(const std::string& path, const Samples& samples) {
  if (samples.is_pictures) return write_png(path + ".png", grid_of(samples));
  write_latents(path + ".safetensors", samples);
}

std::vector<float> gather_samples(comm::ProcessGroup& group, const std::vector<float>& mine) {
  const std::string_view bytes(reinterpret_cast<const char*>(mine.data()),
                               mine.size() * sizeof(float));
  std::vector<float> all;
  for (const std::string& part : group.gather_bytes(bytes, /*root=*/0, "samples")) {
    const size_t begin = all.size();
    all.resize(begin + part.size() / sizeof(float));
    std::memcpy(all.data() + begin, part.data(), part.size());
  }
  return all;
}

}  // namespace shale::models

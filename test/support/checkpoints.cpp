#include "shale/test/support/checkpoints.h"

#include <algorithm>
#include <string_view>

#include "shale/base/text.h"
#include "shale/comm/checkpoint/shard_image.h"
#include "shale/runtime/io/direct_memory.h"

namespace shale::test {
namespace {

// A tensor of two boxes side by side, each divided among ranks.
constexpr const char* kGrid = "h.0.grid";

// Returns byte `index` of a tensor at a step; bytes are pseudo-random (splitmix64).
std::byte byte_at(std::string_view tensor, int64_t step, int64_t index) {
  uint64_t state = static_cast<uint64_t>(step) * 0x2545f4914f6cdd1d + static_cast<uint64_t>(index);
  for (const char c : tensor) state = (state ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
  state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
  return static_cast<std::byte>(state >> 56);
}

int64_t numel(const std::vector<int64_t>& shape) {
  int64_t result = 1;
  for (const int64_t size : shape) result *= size;
  return result;
}

// Returns the elements of a part that a rank has. The part is divided as evenly as possible,
// without alignment.
TensorPart share(TensorPart part, int rank, int ranks) {
  const int64_t count = part.count;
  part.first = count * rank / ranks;
  part.count = count * (rank + 1) / ranks - part.first;
  return part;
}

}  // namespace

std::vector<TensorPart> sample_tensors(const SampleOptions& options) {
  const std::vector<TensorPart> declared = {
      {.tensor = "wte.weight", .dtype = DType::kF32, .shape = {options.rows, 16}},
      {.tensor = "wte.weight/m", .dtype = DType::kF32, .shape = {options.rows, 16}},
      {.tensor = "wte.weight/v", .dtype = DType::kBF16, .shape = {options.rows, 16}},
      {.tensor = kGrid, .dtype = DType::kF16, .shape = {6, 10, 3}},
      {.tensor = "h.0.bias", .dtype = DType::kF32, .shape = {7}},
      {.tensor = "scales", .dtype = DType::kU8, .shape = {33}},
      {.tensor = "scalar", .dtype = DType::kF64, .shape = {}},
      {.tensor = "nothing", .dtype = DType::kF32, .shape = {0, 4}}};
  std::vector<TensorPart> tensors = declared;
  for (TensorPart& tensor : tensors) tensor.count = numel(tensor.shape);
  return tensors;
}

std::vector<TensorPart> sample_parts(const SampleOptions& options, int rank) {
  std::vector<TensorPart> parts;
  for (const TensorPart& tensor : sample_tensors(options)) {
    if (tensor.tensor == kGrid) {
      for (const int64_t half : {0, 1}) {
        TensorPart box = tensor;
        box.box = {.begin = {0, half * 4, 0}, .size = {6, half == 0 ? 4 : 6, 3}};
        box.count = numel(box.box.size);
        parts.push_back(share(box, rank, options.ranks));
      }
    } else {
      parts.push_back(share(tensor, rank, options.ranks));
    }
  }
  return parts;
}

std::vector<std::byte> sample_bytes(const TensorPart& part, int64_t step) {
  const int64_t size = dtype_size(part.dtype);
  const TensorBox box = part.box.size.empty() ? whole_box(part.shape) : part.box;
  std::vector<std::byte> bytes;
  for (int64_t i = part.first; i < part.first + part.count; ++i) {
    int64_t rest = i;
    int64_t stride = 1;
    int64_t place = 0;  // index of the element in the tensor
    for (size_t dim = part.shape.size(); dim-- > 0;) {
      place += (box.begin[dim] + rest % box.size[dim]) * stride;
      rest /= box.size[dim];
      stride *= part.shape[dim];
    }
    for (int64_t b = 0; b < size; ++b)
      bytes.push_back(byte_at(part.tensor, step, place * size + b));
  }
  return bytes;
}

void save_sample(const CheckpointFolder& folder, int64_t step, const SampleOptions& options) {
  const std::string nonce = make_checkpoint_nonce();
  folder.begin(step, nonce);
  CheckpointManifest manifest{.step = step};
  manifest.state = cat("{\"step\":", step, ",\"scale\":0.1}");
  manifest.config = R"({"lr":0.0003,"model":"nano"})";
  for (int rank = 0; rank < options.ranks; ++rank) {
    const ShardPlan plan(shard_file_name(rank, options.ranks), sample_parts(options, rank),
                         options.chunk_bytes);
    const auto memory = allocate_direct_memory(size_t(ShardImage::bytes_for(plan)));
    ShardImage image(plan, memory.get());
    for (size_t i = 0; i < plan.order.size(); ++i) {
      const std::vector<std::byte> bytes = sample_bytes(plan.parts[plan.order[i]], step);
      std::copy(bytes.begin(), bytes.end(), image.data(i));
    }
    image.filled(plan.file().bytes);
    add_shard(manifest, image.write(folder.temporary_path(step, nonce)));
  }
  folder.commit(manifest, nonce);
}

std::string sample_difference(CheckpointReader& reader, const SampleOptions& options,
                              int64_t piece) {
  const std::vector<TensorPart> tensors = sample_tensors(options);
  if (reader.manifest().tensors.size() != tensors.size()) {
    return cat(reader.manifest().tensors.size(), " tensors");
  }
  for (TensorPart part : tensors) {
    for (int64_t first = 0; first < numel(part.shape); first += piece) {
      part.first = first;
      part.count = std::min(piece, numel(part.shape) - first);
      std::vector<std::byte> found(static_cast<size_t>(part.bytes()));
      reader.read(part.tensor, first, found);
      if (found != sample_bytes(part, reader.manifest().step)) {
        return cat(part.tensor, " differs after element ", first);
      }
    }
  }
  return {};
}

}  // namespace shale::test

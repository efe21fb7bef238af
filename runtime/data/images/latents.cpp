#include "shale/runtime/data/images/latents.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "shale/base/dtype.h"
#include "shale/base/error.h"
#include "shale/kernels/loss.h"
#include "shale/runtime/data/content_scan.h"
#include "shale/runtime/data/images/dataset_internal.h"
#include "shale/runtime/data/split.h"
#include "shale/runtime/io/safetensors.h"

namespace shale {
namespace {

namespace fs = std::filesystem;
using data_internal::FileUse;

std::vector<std::string> latent_files(const std::string& path) {
  std::vector<std::string> files;
  for (const std::string& folder : data_internal::folders_by_use(path)) {
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder, error)) {
      if (entry.path().extension() == ".safetensors") files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

const SafetensorsEntry& entry_of(const SafetensorsFile& file, const char* name,
                                 const char* wanted) {
  const SafetensorsEntry* entry = file.find(name);
  if (entry != nullptr) return *entry;
  throw DataError(cat(file.path(), ": no tensor '", name, "', expected ", wanted));
}

std::vector<int64_t> labels_of(const SafetensorsFile& file, int64_t count) {
  const SafetensorsEntry& entry = entry_of(file, "labels", "one number for each of 'latents'");
  const View view = file.view(entry);
  if (entry.shape != std::vector<int64_t>{count} ||
      (view.dtype != DType::kI64 && view.dtype != DType::kI32)) {
    throw DataError(cat(file.path(), ": 'labels' is ", view, ", expected i64[", count, "] or i32"));
  }
  std::vector<int64_t> labels(static_cast<size_t>(count));
  for (size_t i = 0; i < labels.size(); ++i) {
    labels[i] = view.dtype == DType::kI64 ? view.as<int64_t>()[i] : view.as<int32_t>()[i];
    constexpr int64_t kMost = 1 << 24;
    image_internal::check_label(labels[i], kMost, file.path(), static_cast<int64_t>(i));
  }
  return labels;
}

float value_at(const View& view, int64_t i) {
  switch (view.dtype) {
    case DType::kF32: return view.as<float>()[i];
    case DType::kF16: return static_cast<float>(view.as<f16>()[i]);
    default: return static_cast<float>(view.as<bf16>()[i]);
  }
}

// The fields "images" and "labels" of a batch.
struct LatentBatch {
  LatentBatch(Batch& batch, int64_t rows, const LatentDataset& latents)
      : row_values(latents.pixels() * latents.pixels() * latents.channels()) {
    const Shape shape{rows, latents.pixels(), latents.pixels(), latents.channels()};
    // Adds both fields before it uses one, because adding a field moves the others in memory.
    batch.set("images", DType::kF32, shape);
    labels = batch.set("labels", DType::kI32, {rows}).values<int32_t>();
    values = batch.set("images", DType::kF32, shape).values<float>();
  }
  std::span<float> row(int64_t i) const {
    return values.subspan(static_cast<size_t>(i * row_values), static_cast<size_t>(row_values));
  }

  int64_t row_values;
  std::span<float> values;
  std::span<int32_t> labels;
};

}  // namespace

// Latents of a folder. One process of a host finds them for all processes of the host.
struct LatentFolder {
  void add(const std::string& path) {
    SafetensorsFile file(path);
    const SafetensorsEntry& entry = entry_of(file, "latents", "[n, C, H, H]");
    const View view = file.view(entry);
    const bool is_float =
        view.dtype == DType::kF32 || view.dtype == DType::kF16 || view.dtype == DType::kBF16;
    if (!is_float || view.ndim() != 4 || view.size(2) != view.size(3) || view.numel() == 0) {
      throw DataError(cat(path, ": 'latents' is ", view,
                          ", expected f32, f16 or bf16 [n, C, H, H] with n of at least 1"));
    }
    if (all.dtypes_.empty()) all.channels_ = view.size(1), all.pixels_ = view.size(2);
    if (view.size(1) != all.channels_ || view.size(2) != all.pixels_) {
      throw DataError(cat(path, ": 'latents' is ", view, ", expected [n,", all.channels_, ",",
                          all.pixels_, ",", all.pixels_, "] as in ",
                          all.files_->entries().front().path));
    }
    const std::vector<int64_t> labels = labels_of(file, view.size(0));
    fingerprint = image_internal::mix_fingerprint(fingerprint, fs::path(path).filename().string(),
                                                  static_cast<uint64_t>(view.numel()));
    for (size_t row = 0; row < labels.size(); ++row) {
      fingerprint =
          image_internal::mix_fingerprint(fingerprint, "label", static_cast<uint64_t>(labels[row]));
      classes = std::max(classes, labels[row] + 1);
      all.places_.push_back(
          {.file = static_cast<uint32_t>(all.dtypes_.size()),
           .label = static_cast<int32_t>(labels[row]),
           .begin = entry.begin + static_cast<int64_t>(row) * (entry.bytes / view.size(0))});
    }
    all.dtypes_.push_back(view.dtype);
    file.check();
    all.files_->add(file.take_file());
  }

  // Marks samples for validation. files: true for each file that is for validation by its name; all
  // its samples are marked. If there are no such files, marks an evenly spread fraction.
  void hold_out(const std::vector<bool>& files, double fraction) {
    const bool by_name = std::find(files.begin(), files.end(), true) != files.end();
    const int64_t count = all.size();
    const auto most = static_cast<int64_t>(static_cast<double>(count) * fraction);
    for (int64_t i = 0; i < count; ++i) {
      held_out.push_back(by_name ? files[all.place(i).file]
                                 : (i + 1) * most / count > i * most / count);
    }
  }
  // Returns the samples for training (mark 0) or validation (mark 1).
  std::shared_ptr<const LatentDataset> part(uint8_t mark) const {
    auto some = std::make_shared<LatentDataset>(all);
    some->places_.clear();
    for (int64_t i = 0; i < all.size(); ++i) {
      if (held_out[static_cast<size_t>(i)] == mark) some->places_.push_back(all.place(i));
    }
    return some;
  }

  void exchange(data_internal::PackedValues& packed) {
    exchange_all(packed, *all.files_, all.dtypes_, all.places_, all.channels_, all.pixels_,
                 held_out, classes, skipped, fingerprint, checksum);
  }

  LatentDataset all;
  std::vector<uint8_t> held_out;  // for each sample, 1 if it is for validation, else 0
  // number of classes; number of files for test, which are skipped
  int64_t classes = 0, skipped = 0;
  uint64_t fingerprint = 0, checksum = 0;
};

static void exchange(data_internal::PackedValues& packed, LatentFolder& folder) {
  folder.exchange(packed);
}

static LatentFolder find_latents(const std::string& path, double val_fraction,
                                 const OnReading& on_reading) {
  std::vector<std::string> files = latent_files(path);
  if (files.empty()) throw MissingInputError(cat("--data ", path, ": no safetensors files"));
  std::vector<std::string> names;
  for (const std::string& file : files)
    names.push_back(fs::path(file).lexically_relative(path).string());
  const std::vector<FileUse> uses = data_internal::divide_files(names, path);
  LatentFolder folder;
  std::vector<bool> files_held_out;
  for (size_t i = 0; i < files.size(); ++i) {
    if (uses[i] == FileUse::kNone) continue;
    if (on_reading) on_reading(files[i]);
    folder.add(files[i]);
    files_held_out.push_back(uses[i] == FileUse::kValidation);
  }
  folder.hold_out(files_held_out, val_fraction);
  folder.skipped = std::ssize(files) - std::ssize(files_held_out);
  folder.checksum = data_internal::sampled_checksum(
      std::ssize(files), [&](int64_t i) { return files[static_cast<size_t>(i)]; }, on_reading);
  return folder;
}

const LatentDataset::Place& LatentDataset::place(int64_t index) const {
  if (index >= 0 && index < size()) return places_[static_cast<size_t>(index)];
  throw InternalError(cat("latents: latent ", index, ", expected [0, ", size(), ")"));
}

void LatentDataset::read(int64_t index, std::span<float> to) const {
  const Place& at = place(index);
  const std::shared_ptr<const MappedFile> file = files_->map(at.file);
  const int64_t area = pixels_ * pixels_;
  const auto bytes = static_cast<size_t>(channels_ * area * dtype_size(dtypes_[at.file]));
  const auto values = file->bytes().subspan(static_cast<size_t>(at.begin), bytes);
  file->will_need(values);
  const View view =
      make_view(const_cast<std::byte*>(values.data()), dtypes_[at.file], {channels_, area});
  for (int64_t c = 0; c < channels_; ++c) {
    for (int64_t i = 0; i < area; ++i) {
      to[static_cast<size_t>(i * channels_ + c)] = value_at(view, c * area + i);
    }
  }
  file->check();
}

bool has_latents(const std::string& path, const OncePerHost& once) {
  return data_internal::once_per_host<bool>(once, [&] { return !latent_files(path).empty(); });
}

LatentSplits open_latents(const std::string& path, double val_fraction, const OnReading& on_reading,
                          const OncePerHost& once) {
  const LatentFolder folder = data_internal::once_per_host<LatentFolder>(
      once, [&] { return find_latents(path, val_fraction, on_reading); });
  const auto val = std::count(folder.held_out.begin(), folder.held_out.end(), 1);
  LatentSplits splits{.train = folder.part(0),
                      .channels = folder.all.channels(),
                      .pixels = folder.all.pixels(),
                      .classes = folder.classes,
                      .fingerprint = folder.fingerprint,
                      .checksum = folder.checksum};
  if (val > 0) splits.val = folder.part(1);
  splits.summary = cat(path, ": ", splits.train->size(), " training and ", val,
                       " validation latents of ", splits.classes, " classes, ", splits.channels,
                       " x ", splits.pixels, " x ", splits.pixels);
  if (folder.skipped > 0) {
    splits.summary += cat("; skipped ", folder.skipped, " files of the test split");
  }
  return splits;
}

BatchSource latent_train_batches(std::shared_ptr<const LatentDataset> latents, uint64_t seed,
                                 const BatchLayout& layout, int64_t rank, int64_t first_step) {
  layout.validate();
  return [=](int64_t i, Batch& batch) {
    const BatchLayout::Place place = layout.place_of(first_step, i);
    const LatentBatch to(batch, layout.micro_batch, *latents);
    batch.first_position = layout.first_position(place.step, rank, place.micro);
    batch.count = layout.micro_batch;
    const int64_t size = latents->size();
    for (int64_t row = 0; row < layout.micro_batch; ++row) {
      const int64_t position = batch.first_position + row;
      const auto epoch = static_cast<uint64_t>(position / size);
      const int64_t index = Permutation(size, seed, epoch)(position % size);
      latents->read(index, to.row(row));
      to.labels[static_cast<size_t>(row)] = latents->label(index);
    }
    return true;
  };
}

BatchSource latent_eval_batches(std::shared_ptr<const LatentDataset> latents,
                                const EvalRounds& rounds, int64_t rank, int64_t ranks) {
  return [=](int64_t i, Batch& batch) {
    if (i >= rounds.rounds(ranks)) return false;
    const EvalRounds::Range range = rounds.range(i, rank, ranks);
    const LatentBatch to(batch, rounds.batch(), *latents);
    batch.first_position = range.first;
    batch.count = range.count;
    for (int64_t row = 0; row < rounds.batch(); ++row) {
      const bool is_there = row < range.count;
      if (is_there) {
        latents->read(range.first + row, to.row(row));
      } else {
        std::ranges::fill(to.row(row), 0.f);
      }
      to.labels[static_cast<size_t>(row)] =
          is_there ? latents->label(range.first + row) : kernels::kIgnoreTarget;
    }
    return true;
  };
}

}  // namespace shale

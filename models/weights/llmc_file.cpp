#include "shale/models/weights/llmc_file.h"

#include <cstring>
#include <utility>

#include "shale/base/error.h"

namespace shale::models {

std::optional<LlmcFile> LlmcFile::open(const std::string& path, int32_t magic) {
  LlmcFile opened;
  const MappedFile& file = opened.files_.map(path);
  opened.file_ = &file;
  if (file.bytes().size() < sizeof opened.header_) return std::nullopt;
  std::memcpy(opened.header_.data(), file.bytes().data(), sizeof opened.header_);
  if (opened.header_[0] != magic) return std::nullopt;
  const int32_t version = opened.header_[1];
  if (version != 3 && version != 5) {
    throw DataError(cat(path, ": version ", version, " of llm.c's models, expected 3 or 5"));
  }
  opened.type_ = find_safetensors_dtype(version == 3 ? "F32" : "BF16");
  return opened;
}

int64_t LlmcFile::values_left() const {
  return (std::ssize(file_->bytes()) - next_) / (type_->bits / 8);
}

void LlmcFile::add(const std::string& name, const std::vector<int64_t>& shape,
                   int64_t stored_rows) {
  int64_t values = stored_rows > 0 ? stored_rows : shape[0];
  for (size_t d = 1; d < shape.size(); ++d) values *= shape[d];
  if (values > values_left()) {
    throw DataError(
        cat(file_->path(), ": ", file_->bytes().size(), " bytes, which end before ", name));
  }
  StoredPart part{.file = file_,
                  .begin = std::vector<int64_t>(shape.size(), 0),
                  .shape = shape,
                  .elements = {file_->bytes().data() + next_, dense_strides(shape)}};
  files_.add({name, type_, shape, {std::move(part)}});
  next_ += values * (type_->bits / 8);
}

StoredTensors LlmcFile::finish() {
  if (next_ != std::ssize(file_->bytes())) {
    throw DataError(cat(file_->path(), ": ", file_->bytes().size(), " bytes, expected ", next_));
  }
  return std::move(files_);
}

}  // namespace shale::models

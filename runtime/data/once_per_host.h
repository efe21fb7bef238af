#pragma once

#include <cstddef>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "shale/base/error.h"

namespace shale {

class FileMaps;

// Calls `read` in one process of each host, and returns its result in all processes of the host. If
// `read` throws, all of them throw an error with the same code and message. Collective over the
// processes of the host.
using OncePerHost = std::function<std::string(const std::function<std::string()>& read)>;

namespace data_internal {

// Values as bytes, to send them to other processes of the same program. exchange(all, value) either
// packs the value into `all` or unpacks it from `all`.
class PackedValues {
 public:
  PackedValues() = default;  // makes an object into which values are packed
  explicit PackedValues(std::string bytes)
      : bytes_(std::make_shared<std::string>(std::move(bytes))), unpacks_(true) {}

  bool unpacks() const { return unpacks_; }
  std::string take() { return std::move(*bytes_); }

  void exchange_bytes(void* data, size_t bytes) {
    if (!unpacks_) {
      bytes_->append(static_cast<const char*>(data), bytes);
    } else if (bytes > 0) {
      std::memcpy(data, next(bytes), bytes);
    }
  }
  // Packs or unpacks `bytes` bytes of memory. Unpacking does not copy: `memory` shares ownership of
  // all packed bytes. It is aligned to 8 bytes.
  void exchange_memory(std::shared_ptr<const std::byte>& memory, size_t bytes) {
    const size_t padding = (8 - (unpacks_ ? at_ : bytes_->size()) % 8) % 8;
    if (unpacks_) {
      next(padding);
      memory = {bytes_, reinterpret_cast<const std::byte*>(next(bytes))};
    } else {
      bytes_->append(padding, '\0');
      bytes_->append(reinterpret_cast<const char*>(memory.get()), bytes);
    }
  }

 private:
  const char* next(size_t bytes) {
    if (bytes > bytes_->size() - at_) {
      throw InternalError(
          cat("packed values: expected ", bytes, " more bytes, found ", bytes_->size() - at_));
    }
    at_ += bytes;
    return bytes_->data() + at_ - bytes;
  }

  std::shared_ptr<std::string> bytes_ = std::make_shared<std::string>();
  bool unpacks_ = false;
  size_t at_ = 0;  // index of the next byte to unpack
};

template <typename T>
requires std::is_trivially_copyable_v<T>
void exchange(PackedValues& all, T& value) {
  all.exchange_bytes(&value, sizeof value);
}

// Packs or unpacks a string or a vector.
template <typename T>
requires requires(T& some) {
  some.resize(some.size());
}
void exchange(PackedValues& all, T& some) {
  size_t size = some.size();
  exchange(all, size);
  some.resize(size);
  if constexpr (std::is_trivially_copyable_v<typename T::value_type>) {
    all.exchange_bytes(some.data(), size * sizeof(typename T::value_type));
  } else {
    for (auto& one : some) exchange(all, one);
  }
}

// Packs the list of files, or adds packed files to an empty FileMaps.
void exchange(PackedValues& all, FileMaps& files);

template <typename... T>
void exchange_all(PackedValues& all, T&... values) {
  (exchange(all, values), ...);
}

// Calls `read` through `once`, and returns its result. If `once` is empty, each process calls
// `read` itself.
template <typename T>
T once_per_host(const OncePerHost& once, const std::function<T()>& read) {
  if (!once) return read();
  std::optional<T> mine;
  PackedValues all(once([&] {
    mine = read();
    PackedValues packed;
    exchange(packed, *mine);
    return packed.take();
  }));
  if (mine) return std::move(*mine);
  T value{};
  exchange(all, value);
  return value;
}

}  // namespace data_internal
}  // namespace shale

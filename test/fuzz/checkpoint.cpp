// Fuzzes a whole checkpoint folder, in a file system in memory. The input contains the manifest's
// text on tensors and the headers of its shards. The target corrects sizes and checksums, because
// otherwise no changed input would be accepted. Layout: two bytes with the length of the first
// text, two bytes with the number of data bytes per shard, the text of "tensors", and the headers,
// separated by newlines.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "shale/comm/checkpoint/reader.h"
#include "shale/runtime/io/crc32c.h"
#include "shale/runtime/io/file.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxShards = 3;

// A folder of this process, removed at its end.
class Scratch {
 public:
  Scratch() {
    const char* parent = fs::exists("/dev/shm") ? "/dev/shm" : "/tmp";
    path_ = cat(parent, "/shale_fuzz_XXXXXX");
    fuzz::require(::mkdtemp(path_.data()) != nullptr, "a folder can be made");
  }
  ~Scratch() {
    std::error_code error;
    fs::remove_all(path_, error);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  const std::string& path() const { return path_; }
  // Overwrites the file in place, because creating and removing files would take most of the time.
  void write(const std::string& name, std::string_view bytes) const {
    const FileHandle file(
        ::open(cat(path_, "/", name).c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    fuzz::require(
        ::pwrite(file.get(), bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()) &&
            ::ftruncate(file.get(), static_cast<off_t>(bytes.size())) == 0,
        "a file can be written");
  }

 private:
  std::string path_;
};

uint32_t crc_of(std::string_view text) {
  return crc32c(std::as_bytes(std::span(text)));
}

std::string hex(uint32_t value) {
  char digits[9];
  std::snprintf(digits, sizeof digits, "%08x", value);
  return digits;
}

// Returns a safetensors file with this header, and data in which adjacent bytes differ.
std::string make_shard(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t size = header.size();
  std::memcpy(file.data(), &size, sizeof size);
  file += header;
  for (size_t i = 0; i < data_bytes; ++i) file += static_cast<char>(i * 37 + i / 251);
  return file;
}

std::string shard_name(size_t shard) {
  return cat("shard_", shard);
}

std::string make_manifest(std::string_view tensors, const std::vector<std::string>& shards) {
  std::string files;
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string crcs;
    for (size_t begin = 0; begin < shards[i].size(); begin += kMinChunkBytes) {
      crcs += hex(crc_of(std::string_view(shards[i]).substr(begin, kMinChunkBytes)));
    }
    files += cat(i == 0 ? "" : ",", "{\"name\":\"", shard_name(i),
                 "\",\"bytes\":", shards[i].size(), ",\"crc32c\":\"", crcs, "\"}");
  }
  const std::string body =
      cat(R"({"format":"shale-checkpoint","format_version":1,"writer":"fuzz","step":1,)",
          R"("state":{},"config":{},"chunk_bytes":)", kMinChunkBytes, ",\"files\":[", files,
          "],\"tensors\":", tensors, "\n");
  return cat(body, ",\"crc32c\":\"", hex(crc_of(body)), "\"}\n");
}

// Reads a valid checkpoint in every way, and compares all bytes.
void check_reads(CheckpointReader& reader, const std::vector<std::string>& shards) {
  std::map<std::string, std::vector<std::byte>, std::less<>> whole, again;
  std::vector<CheckpointRead> reads;
  for (const auto& [name, tensor] : reader.manifest().tensors) {
    const auto bytes = static_cast<size_t>(tensor.bytes());
    std::vector<std::byte>& found = whole[name];
    found.resize(bytes);
    reader.read(name, 0, found);
    const auto size = static_cast<size_t>(dtype_size(tensor.dtype));
    for (int64_t i = 0; i < tensor.numel(); i += tensor.numel() / 8 + 1) {
      const CheckpointReader::Place place = reader.place_of(name, i);
      fuzz::require(std::memcmp(found.data() + static_cast<size_t>(i) * size,
                                shards[place.file].data() + place.offset, size) == 0,
                    "an element is the file's at its place");
    }
    std::vector<std::byte>& other = again[name];
    other.resize(bytes);
    reads.push_back({name, 0, other});
  }
  reader.read_all(reads);
  fuzz::require(whole == again, "reading all at once is the same as one after another");
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  static const Scratch scratch;
  if (size < 4) return 0;
  const auto number = [&](size_t at) { return size_t{data[at]} | size_t{data[at + 1]} << 8; };
  const std::string_view text = fuzz::text_of(data, size).substr(4);
  const std::string_view tensors = text.substr(0, number(0));
  std::string_view headers = text.substr(tensors.size());
  std::vector<std::string> shards;
  while (shards.size() < kMaxShards && (shards.empty() || !headers.empty())) {
    const size_t end = std::min(headers.find('\n'), headers.size());
    shards.push_back(make_shard(headers.substr(0, end), number(2)));
    headers.remove_prefix(std::min(end + 1, headers.size()));
  }
  for (size_t i = 0; i < shards.size(); ++i) scratch.write(shard_name(i), shards[i]);
  scratch.write(kManifestName, make_manifest(tensors, shards));
  fuzz::accepts<DataError>([&] {
    CheckpointReader reader(scratch.path());
    reader.verify();
    check_reads(reader, shards);
  });
  // Reads the checkpoint as a resuming run does, without validating everything first.
  fuzz::accepts<DataError>([&] {
    CheckpointReader reader(scratch.path());
    for (const auto& tensor : reader.manifest().tensors) {
      const int64_t bytes = tensor.second.bytes();
      if (bytes > int64_t{1} << 20) continue;
      std::vector<std::byte> into(static_cast<size_t>(bytes));
      fuzz::accepts<DataError>([&] { reader.read(tensor.first, 0, into); });
    }
  });
  return 0;
}

// The first byte of the input chooses the options. The rest is a file with text, or with tokens in
// the format of llm.c, of nanoGPT, or raw.
#include <sys/mman.h>
#include <unistd.h>

#include <array>

#include "shale/runtime/data/tokens/token_dataset.h"
#include "shale/test/fuzz/fuzz.h"

namespace shale {
namespace {

// A file in memory that has a name.
class MemoryFile {
 public:
  MemoryFile() : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
    fuzz::require(fd_ >= 0, "there is a file in memory");
  }
  std::string path() const { return cat("/proc/self/fd/", fd_); }
  void assign(const uint8_t* data, size_t size) const {
    const bool ok =
        ::ftruncate(fd_, 0) == 0 && ::pwrite(fd_, data, size, 0) == static_cast<ssize_t>(size);
    fuzz::require(ok, "the file in memory can be written");
  }

 private:
  int fd_;
};

void check_stream(const TokenStream& stream) {
  constexpr int64_t kWindow = 100;
  std::array<int32_t, kWindow> window;
  for (int64_t begin = 0; begin < stream.size(); begin += kWindow) {
    const auto count = static_cast<size_t>(std::min(kWindow, stream.size() - begin));
    stream.read(begin, std::span(window).first(count));
    for (size_t i = 0; i < count; ++i) {
      fuzz::require(window[i] >= 0 && window[i] < stream.vocab_bound(), "tokens are below a bound");
    }
  }
}

}  // namespace
}  // namespace shale

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace shale;
  static const MemoryFile file;
  if (size == 0) return 0;
  file.assign(data + 1, size - 1);
  const DataFormat chosen = std::array{DataFormat::kAuto, DataFormat::kText, DataFormat::kLlmc,
                                       DataFormat::kNanogpt}[data[0] % 4];
  const bool is_raw = (data[0] & 32) != 0;
  const DataFormat format = is_raw ? DataFormat::kRaw : chosen;
  DataOptions options{.path = file.path(),
                      .format = format,
                      .val_fraction = (data[0] & 4) != 0 ? 0.3 : 0,
                      .vocab_size = (data[0] & 8) != 0 ? 300 : 0,
                      .validate = (data[0] & 16) == 0};
  if (is_raw) options.width = (data[0] & 64) != 0 ? TokenWidth::k32 : TokenWidth::k16;
  fuzz::accepts<DataError>([&] {
    const DatasetSplits splits = open_dataset(options);
    check_stream(*splits.train);
    if (splits.val != nullptr) check_stream(*splits.val);
  });
  return 0;
}

#include "shale/base/stream_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace shale {

#if defined(__SSE2__)

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  constexpr size_t kLine = 64;
  // Copy the bytes before the destination's next cache line separately, because only whole lines
  // are written with one store.
  const size_t head = std::min(bytes, (kLine - reinterpret_cast<uintptr_t>(to) % kLine) % kLine);
  std::memcpy(to, from, head);
  to += head, from += head, bytes -= head;
  for (; bytes >= kLine; to += kLine, from += kLine, bytes -= kLine) {
    const auto* source = reinterpret_cast<const __m128i*>(from);
    auto* line = reinterpret_cast<__m128i*>(to);
    const __m128i a = _mm_loadu_si128(source), b = _mm_loadu_si128(source + 1);
    const __m128i c = _mm_loadu_si128(source + 2), d = _mm_loadu_si128(source + 3);
    _mm_stream_si128(line, a);
    _mm_stream_si128(line + 1, b);
    _mm_stream_si128(line + 2, c);
    _mm_stream_si128(line + 3, d);
  }
  _mm_sfence();  // non-temporal stores are not ordered with later stores
  std::memcpy(to, from, bytes);
}

#else

void stream_copy(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

#endif

}  // namespace shale

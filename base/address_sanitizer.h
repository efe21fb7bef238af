#pragma once

#include <cstddef>

// Tells AddressSanitizer which parts of Shale's own memory may be accessed. Does nothing in other
// builds.
#if defined(__SANITIZE_ADDRESS__)
#define SHALE_HAVE_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SHALE_HAVE_ASAN 1
#endif
#endif

#ifdef SHALE_HAVE_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace shale::address_sanitizer {

inline void poison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#ifdef SHALE_HAVE_ASAN
  __asan_poison_memory_region(p, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#ifdef SHALE_HAVE_ASAN
  __asan_unpoison_memory_region(p, bytes);
#endif
}

}  // namespace shale::address_sanitizer

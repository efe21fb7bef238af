#pragma once

#include <cstdint>

namespace shale::emulator {

enum class Access : uint8_t { kRead, kWrite, kAtomic };

inline const char* verb(Access kind) {
  switch (kind) {
    case Access::kRead: return "reads";
    case Access::kWrite: return "writes";
    case Access::kAtomic: return "changes atomically";
  }
  return "";
}

}  // namespace shale::emulator

#pragma once

// The instruction wgmma.mma_async for each number of columns of d. An asm statement takes only
// literals and must name every accumulator register, so this file uses macros, which it undefines
// at its end, and a line for each number of columns.

#include <type_traits>

#include "shale/base/dtype.h"
#include "shale/kernels/fp8_number.h"
#include "shale/kernels/simt/cuda/builtins.h"

namespace shale::kernels::cuda::simt {

// shared<T, a_is_mn_major, b_is_mn_major>(d, a, b, accumulate): a and b by descriptor
// registers<T, b_is_mn_major>(d, a, b, accumulate): a in registers
// bytes<TA, TB>(d, a, b, accumulate): 8-bit elements, by descriptor
template <int kColumns>
struct WgmmaInstruction;

#define SHALE_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])

#define SHALE_TEXT_8 "%0, %1, %2, %3"
#define SHALE_OUT_8 SHALE_4(0)
#define SHALE_TEXT_16 SHALE_TEXT_8 ", %4, %5, %6, %7"
#define SHALE_OUT_16 SHALE_OUT_8, SHALE_4(4)
#define SHALE_TEXT_24 SHALE_TEXT_16 ", %8, %9, %10, %11"
#define SHALE_OUT_24 SHALE_OUT_16, SHALE_4(8)
#define SHALE_TEXT_32 SHALE_TEXT_24 ", %12, %13, %14, %15"
#define SHALE_OUT_32 SHALE_OUT_24, SHALE_4(12)
#define SHALE_TEXT_40 SHALE_TEXT_32 ", %16, %17, %18, %19"
#define SHALE_OUT_40 SHALE_OUT_32, SHALE_4(16)
#define SHALE_TEXT_48 SHALE_TEXT_40 ", %20, %21, %22, %23"
#define SHALE_OUT_48 SHALE_OUT_40, SHALE_4(20)
#define SHALE_TEXT_56 SHALE_TEXT_48 ", %24, %25, %26, %27"
#define SHALE_OUT_56 SHALE_OUT_48, SHALE_4(24)
#define SHALE_TEXT_64 SHALE_TEXT_56 ", %28, %29, %30, %31"
#define SHALE_OUT_64 SHALE_OUT_56, SHALE_4(28)
#define SHALE_TEXT_72 SHALE_TEXT_64 ", %32, %33, %34, %35"
#define SHALE_OUT_72 SHALE_OUT_64, SHALE_4(32)
#define SHALE_TEXT_80 SHALE_TEXT_72 ", %36, %37, %38, %39"
#define SHALE_OUT_80 SHALE_OUT_72, SHALE_4(36)
#define SHALE_TEXT_88 SHALE_TEXT_80 ", %40, %41, %42, %43"
#define SHALE_OUT_88 SHALE_OUT_80, SHALE_4(40)
#define SHALE_TEXT_96 SHALE_TEXT_88 ", %44, %45, %46, %47"
#define SHALE_OUT_96 SHALE_OUT_88, SHALE_4(44)
#define SHALE_TEXT_104 SHALE_TEXT_96 ", %48, %49, %50, %51"
#define SHALE_OUT_104 SHALE_OUT_96, SHALE_4(48)
#define SHALE_TEXT_112 SHALE_TEXT_104 ", %52, %53, %54, %55"
#define SHALE_OUT_112 SHALE_OUT_104, SHALE_4(52)
#define SHALE_TEXT_120 SHALE_TEXT_112 ", %56, %57, %58, %59"
#define SHALE_OUT_120 SHALE_OUT_112, SHALE_4(56)
#define SHALE_TEXT_128 SHALE_TEXT_120 ", %60, %61, %62, %63"
#define SHALE_OUT_128 SHALE_OUT_120, SHALE_4(60)
#define SHALE_TEXT_136 SHALE_TEXT_128 ", %64, %65, %66, %67"
#define SHALE_OUT_136 SHALE_OUT_128, SHALE_4(64)
#define SHALE_TEXT_144 SHALE_TEXT_136 ", %68, %69, %70, %71"
#define SHALE_OUT_144 SHALE_OUT_136, SHALE_4(68)
#define SHALE_TEXT_152 SHALE_TEXT_144 ", %72, %73, %74, %75"
#define SHALE_OUT_152 SHALE_OUT_144, SHALE_4(72)
#define SHALE_TEXT_160 SHALE_TEXT_152 ", %76, %77, %78, %79"
#define SHALE_OUT_160 SHALE_OUT_152, SHALE_4(76)
#define SHALE_TEXT_168 SHALE_TEXT_160 ", %80, %81, %82, %83"
#define SHALE_OUT_168 SHALE_OUT_160, SHALE_4(80)
#define SHALE_TEXT_176 SHALE_TEXT_168 ", %84, %85, %86, %87"
#define SHALE_OUT_176 SHALE_OUT_168, SHALE_4(84)
#define SHALE_TEXT_184 SHALE_TEXT_176 ", %88, %89, %90, %91"
#define SHALE_OUT_184 SHALE_OUT_176, SHALE_4(88)
#define SHALE_TEXT_192 SHALE_TEXT_184 ", %92, %93, %94, %95"
#define SHALE_OUT_192 SHALE_OUT_184, SHALE_4(92)
#define SHALE_TEXT_200 SHALE_TEXT_192 ", %96, %97, %98, %99"
#define SHALE_OUT_200 SHALE_OUT_192, SHALE_4(96)
#define SHALE_TEXT_208 SHALE_TEXT_200 ", %100, %101, %102, %103"
#define SHALE_OUT_208 SHALE_OUT_200, SHALE_4(100)
#define SHALE_TEXT_216 SHALE_TEXT_208 ", %104, %105, %106, %107"
#define SHALE_OUT_216 SHALE_OUT_208, SHALE_4(104)
#define SHALE_TEXT_224 SHALE_TEXT_216 ", %108, %109, %110, %111"
#define SHALE_OUT_224 SHALE_OUT_216, SHALE_4(108)
#define SHALE_TEXT_232 SHALE_TEXT_224 ", %112, %113, %114, %115"
#define SHALE_OUT_232 SHALE_OUT_224, SHALE_4(112)
#define SHALE_TEXT_240 SHALE_TEXT_232 ", %116, %117, %118, %119"
#define SHALE_OUT_240 SHALE_OUT_232, SHALE_4(116)
#define SHALE_TEXT_248 SHALE_TEXT_240 ", %120, %121, %122, %123"
#define SHALE_OUT_248 SHALE_OUT_240, SHALE_4(120)
#define SHALE_TEXT_256 SHALE_TEXT_248 ", %124, %125, %126, %127"
#define SHALE_OUT_256 SHALE_OUT_248, SHALE_4(124)

// The arguments after `type` are the numbers of the asm operands that follow the n / 2
// accumulators.
#define SHALE_ISSUE_SHARED(n, type, r0, r1, r2, r3, r4)                                       \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " r2                                         \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {"     \
               SHALE_TEXT_##n "}, " r0 ", " r1 ", p, 1, 1, " r3 ", " r4 ";\n}"                \
               : SHALE_OUT_##n                                                                \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate)), "n"(kA), "n"(kB)          \
               : "memory")
#define SHALE_ISSUE_REGISTERS(n, type, r0, r1, r2, r3, r4, r5, r6)                            \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " r5                                         \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {"     \
               SHALE_TEXT_##n "}, {" r0 ", " r1 ", " r2 ", " r3 "}, " r4 ", p, 1, 1, " r6      \
               ";\n}"                                                                         \
               : SHALE_OUT_##n                                                                \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b),                          \
                 "r"(static_cast<int>(accumulate)), "n"(kB)                                   \
               : "memory")
#define SHALE_ISSUE_BYTES(n, types, r0, r1, r2)                                               \
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " r2                                         \
               ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n "k32.f32." types " {"             \
               SHALE_TEXT_##n "}, " r0 ", " r1 ", p, 1, 1;\n}"                                \
               : SHALE_OUT_##n                                                                \
               : "l"(a), "l"(b), "r"(static_cast<int>(accumulate))                            \
               : "memory")
#define SHALE_WGMMA(n, r0, r1, r2, r3, r4, r5, r6)                                            \
  template <>                                                                                 \
  struct WgmmaInstruction<n> {                                                                \
    template <typename T, int kA, int kB>                                                     \
    static __device__ __forceinline__ void shared(float (&d)[n / 2], uint64_t a, uint64_t b,  \
                                                  bool accumulate) {                          \
      if constexpr (std::is_same_v<T, bf16>) {                                                \
        SHALE_ISSUE_SHARED(n, "bf16", r0, r1, r2, r3, r4);                                    \
      } else {                                                                                \
        static_assert(std::is_same_v<T, f16>);                                                \
        SHALE_ISSUE_SHARED(n, "f16", r0, r1, r2, r3, r4);                                     \
      }                                                                                       \
    }                                                                                         \
    template <typename T, int kB>                                                             \
    static __device__ __forceinline__ void registers(float (&d)[n / 2], const uint32_t (&a)[4], \
                                                     uint64_t b, bool accumulate) {           \
      if constexpr (std::is_same_v<T, bf16>) {                                                \
        SHALE_ISSUE_REGISTERS(n, "bf16", r0, r1, r2, r3, r4, r5, r6);                         \
      } else {                                                                                \
        static_assert(std::is_same_v<T, f16>);                                                \
        SHALE_ISSUE_REGISTERS(n, "f16", r0, r1, r2, r3, r4, r5, r6);                          \
      }                                                                                       \
    }                                                                                         \
    template <typename TA, typename TB>                                                       \
    static __device__ __forceinline__ void bytes(float (&d)[n / 2], uint64_t a, uint64_t b,   \
                                                 bool accumulate) {                           \
      constexpr bool kIsE4M3A = std::is_same_v<TA, e4m3>, kIsE4M3B = std::is_same_v<TB, e4m3>; \
      static_assert(kIsE4M3A || std::is_same_v<TA, e5m2>);                                    \
      static_assert(kIsE4M3B || std::is_same_v<TB, e5m2>);                                    \
      if constexpr (kIsE4M3A && kIsE4M3B) {                                                   \
        SHALE_ISSUE_BYTES(n, "e4m3.e4m3", r0, r1, r2);                                        \
      } else if constexpr (kIsE4M3A) {                                                        \
        SHALE_ISSUE_BYTES(n, "e4m3.e5m2", r0, r1, r2);                                        \
      } else if constexpr (kIsE4M3B) {                                                        \
        SHALE_ISSUE_BYTES(n, "e5m2.e4m3", r0, r1, r2);                                        \
      } else {                                                                                \
        SHALE_ISSUE_BYTES(n, "e5m2.e5m2", r0, r1, r2);                                        \
      }                                                                                       \
    }                                                                                         \
  };

SHALE_WGMMA(8, "%4", "%5", "%6", "%7", "%8", "%9", "%10")
SHALE_WGMMA(16, "%8", "%9", "%10", "%11", "%12", "%13", "%14")
SHALE_WGMMA(24, "%12", "%13", "%14", "%15", "%16", "%17", "%18")
SHALE_WGMMA(32, "%16", "%17", "%18", "%19", "%20", "%21", "%22")
SHALE_WGMMA(40, "%20", "%21", "%22", "%23", "%24", "%25", "%26")
SHALE_WGMMA(48, "%24", "%25", "%26", "%27", "%28", "%29", "%30")
SHALE_WGMMA(56, "%28", "%29", "%30", "%31", "%32", "%33", "%34")
SHALE_WGMMA(64, "%32", "%33", "%34", "%35", "%36", "%37", "%38")
SHALE_WGMMA(72, "%36", "%37", "%38", "%39", "%40", "%41", "%42")
SHALE_WGMMA(80, "%40", "%41", "%42", "%43", "%44", "%45", "%46")
SHALE_WGMMA(88, "%44", "%45", "%46", "%47", "%48", "%49", "%50")
SHALE_WGMMA(96, "%48", "%49", "%50", "%51", "%52", "%53", "%54")
SHALE_WGMMA(104, "%52", "%53", "%54", "%55", "%56", "%57", "%58")
SHALE_WGMMA(112, "%56", "%57", "%58", "%59", "%60", "%61", "%62")
SHALE_WGMMA(120, "%60", "%61", "%62", "%63", "%64", "%65", "%66")
SHALE_WGMMA(128, "%64", "%65", "%66", "%67", "%68", "%69", "%70")
SHALE_WGMMA(136, "%68", "%69", "%70", "%71", "%72", "%73", "%74")
SHALE_WGMMA(144, "%72", "%73", "%74", "%75", "%76", "%77", "%78")
SHALE_WGMMA(152, "%76", "%77", "%78", "%79", "%80", "%81", "%82")
SHALE_WGMMA(160, "%80", "%81", "%82", "%83", "%84", "%85", "%86")
SHALE_WGMMA(168, "%84", "%85", "%86", "%87", "%88", "%89", "%90")
SHALE_WGMMA(176, "%88", "%89", "%90", "%91", "%92", "%93", "%94")
SHALE_WGMMA(184, "%92", "%93", "%94", "%95", "%96", "%97", "%98")
SHALE_WGMMA(192, "%96", "%97", "%98", "%99", "%100", "%101", "%102")
SHALE_WGMMA(200, "%100", "%101", "%102", "%103", "%104", "%105", "%106")
SHALE_WGMMA(208, "%104", "%105", "%106", "%107", "%108", "%109", "%110")
SHALE_WGMMA(216, "%108", "%109", "%110", "%111", "%112", "%113", "%114")
SHALE_WGMMA(224, "%112", "%113", "%114", "%115", "%116", "%117", "%118")
SHALE_WGMMA(232, "%116", "%117", "%118", "%119", "%120", "%121", "%122")
SHALE_WGMMA(240, "%120", "%121", "%122", "%123", "%124", "%125", "%126")
SHALE_WGMMA(248, "%124", "%125", "%126", "%127", "%128", "%129", "%130")
SHALE_WGMMA(256, "%128", "%129", "%130", "%131", "%132", "%133", "%134")

#undef SHALE_4
#undef SHALE_TEXT_8
#undef SHALE_TEXT_16
#undef SHALE_TEXT_24
#undef SHALE_TEXT_32
#undef SHALE_TEXT_40
#undef SHALE_TEXT_48
#undef SHALE_TEXT_56
#undef SHALE_TEXT_64
#undef SHALE_TEXT_72
#undef SHALE_TEXT_80
#undef SHALE_TEXT_88
#undef SHALE_TEXT_96
#undef SHALE_TEXT_104
#undef SHALE_TEXT_112
#undef SHALE_TEXT_120
#undef SHALE_TEXT_128
#undef SHALE_TEXT_136
#undef SHALE_TEXT_144
#undef SHALE_TEXT_152
#undef SHALE_TEXT_160
#undef SHALE_TEXT_168
#undef SHALE_TEXT_176
#undef SHALE_TEXT_184
#undef SHALE_TEXT_192
#undef SHALE_TEXT_200
#undef SHALE_TEXT_208
#undef SHALE_TEXT_216
#undef SHALE_TEXT_224
#undef SHALE_TEXT_232
#undef SHALE_TEXT_240
#undef SHALE_TEXT_248
#undef SHALE_TEXT_256
#undef SHALE_OUT_8
#undef SHALE_OUT_16
#undef SHALE_OUT_24
#undef SHALE_OUT_32
#undef SHALE_OUT_40
#undef SHALE_OUT_48
#undef SHALE_OUT_56
#undef SHALE_OUT_64
#undef SHALE_OUT_72
#undef SHALE_OUT_80
#undef SHALE_OUT_88
#undef SHALE_OUT_96
#undef SHALE_OUT_104
#undef SHALE_OUT_112
#undef SHALE_OUT_120
#undef SHALE_OUT_128
#undef SHALE_OUT_136
#undef SHALE_OUT_144
#undef SHALE_OUT_152
#undef SHALE_OUT_160
#undef SHALE_OUT_168
#undef SHALE_OUT_176
#undef SHALE_OUT_184
#undef SHALE_OUT_192
#undef SHALE_OUT_200
#undef SHALE_OUT_208
#undef SHALE_OUT_216
#undef SHALE_OUT_224
#undef SHALE_OUT_232
#undef SHALE_OUT_240
#undef SHALE_OUT_248
#undef SHALE_OUT_256
#undef SHALE_ISSUE_SHARED
#undef SHALE_ISSUE_REGISTERS
#undef SHALE_ISSUE_BYTES
#undef SHALE_WGMMA

}  // namespace shale::kernels::cuda::simt

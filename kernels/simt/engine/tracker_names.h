#pragma once

// Included first in files that are compiled with -fsanitize=thread for the tracker
// (cmake/ShaleEmulator.cmake). Makes their code call the functions of tracker_hooks.cpp instead of
// __tsan_..., by renaming the symbols in the assembler. So a program that is itself built with
// ThreadSanitizer can link Shale's libraries. Copies of large structs are calls of memcpy, which is
// renamed for the same reason.
asm(R"(
.irp n, 1, 2, 4, 8, 16
  .set __tsan_read\n, shale_track_read\n
  .set __tsan_write\n, shale_track_write\n
  .set __tsan_unaligned_read\n, shale_track_unaligned_read\n
  .set __tsan_unaligned_write\n, shale_track_unaligned_write\n
  .set __tsan_volatile_read\n, shale_track_volatile_read\n
  .set __tsan_volatile_write\n, shale_track_volatile_write\n
  .set __tsan_read_write\n, shale_track_read_write\n
.endr
.irp n, 8, 16, 32, 64
  .set __tsan_atomic\n\()_load, shale_track_atomic\n\()_load
  .set __tsan_atomic\n\()_store, shale_track_atomic\n\()_store
  .set __tsan_atomic\n\()_exchange, shale_track_atomic\n\()_exchange
  .set __tsan_atomic\n\()_fetch_add, shale_track_atomic\n\()_fetch_add
  .set __tsan_atomic\n\()_fetch_sub, shale_track_atomic\n\()_fetch_sub
  .set __tsan_atomic\n\()_compare_exchange_strong, shale_track_atomic\n\()_compare_exchange_strong
  .set __tsan_atomic\n\()_compare_exchange_val, shale_track_atomic\n\()_compare_exchange_val
.endr
.irp n, read_range, write_range, init, func_entry, func_exit, vptr_update, vptr_read, atomic_thread_fence, atomic_signal_fence, memcpy, memmove, memset
  .set __tsan_\n, shale_track_\n
.endr
.irp n, memcpy, memmove, memset
  .set \n, shale_track_\n
.endr
)");

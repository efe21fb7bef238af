# The CUDA kernels on the CPU. Each .cu file is compiled again by the host compiler, through a
# generated source of one line, since a file has one language per folder.

if(SHALE_SANITIZE MATCHES "thread")
  message(FATAL_ERROR "SHALE_EMULATOR is ON and SHALE_SANITIZE is thread: the emulator runs the "
    "threads of a block as fibers, whose changes of stack ThreadSanitizer is not told of, and its "
    "race tracker takes the place of ThreadSanitizer's functions; want SHALE_EMULATOR=OFF")
endif()

# shale_emulated_sources(<source>...)
#
# Compiles these sources as kernels of the emulator. -fsanitize=thread makes the compiler call a
# function at every load and store; those functions are the race tracker's (see
# kernels/simt/engine/tracker_hooks.cpp), so nothing is linked for it. Builds with a sanitizer of
# their own go without the tracker, as address excludes thread. -g1: reports name instructions,
# addr2line then knows their lines.
function(shale_emulated_sources)
  set(options)
  if(NOT SHALE_SANITIZE)
    set(options -fsanitize=thread -g1
        -include ${PROJECT_SOURCE_DIR}/kernels/simt/engine/tracker_names.h)
  endif()
  # "#pragma unroll" is for nvcc. GCC notes that it passes tensor maps, with their alignment of 64
  # bytes, in another way than very old versions did.
  list(APPEND options -Wno-unknown-pragmas -Wno-psabi)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${options})
endfunction()

# shale_add_emulated_kernels(<target> <file.cu>...): compiles .cu files, relative to the tree, for the
# emulator. No two may have the same name.
function(shale_add_emulated_kernels target)
  foreach(file IN LISTS ARGN)
    cmake_path(GET file STEM stem)
    set(wrapper ${PROJECT_BINARY_DIR}/emulated/${target}/${stem}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"shale/${file}\"\n")
    target_sources(${target} PRIVATE ${wrapper})
    shale_emulated_sources(${wrapper})
  endforeach()
endfunction()

shale_add_layer(kernels_emu
  FOLDERS ${SHALE_emulator_FOLDERS}
  PUBLIC shale_kernels
  PRIVATE ${CMAKE_DL_LIBS})
shale_kernel_files(kernel_files hopper_files ${SHALE_cuda_kernel_FOLDERS})
shale_add_emulated_kernels(shale_kernels_emu ${kernel_files} ${hopper_files})
# A kernel that is run for hours in tests is worth optimising, checks included.
target_compile_options(shale_kernels_emu PRIVATE $<$<CONFIG:Release>:-O3>)

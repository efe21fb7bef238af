# Compiles .cu files with kernels, for CUDA and for the emulator: Shale's own kernels, and by
# shale_add_kernels() those of programs that embed Shale. This file is installed with the package.

# shale_add_kernels(<target> <file.cu>...): adds kernels to an executable or library, for every kind
# of GPU that this Shale is built for. File names must be unique in a target. Files with 90 in the
# name, as in gemm90_bf16.cu, are for Hopper only.
function(shale_add_kernels target)
  set(paths)
  foreach(file IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR})
    list(APPEND paths ${file})
  endforeach()
  if(TARGET shale::kernels_emu)
    shale_add_emulated_kernels(${target} ${paths})
    target_link_libraries(${target} PRIVATE shale::kernels_emu)
  endif()
  if(TARGET shale::kernels_cuda)
    shale_split_kernel_files(files hopper_files ${paths})
    shale_hopper_architectures(hopper_architectures ${SHALE_CUDA_ARCHITECTURES})
    shale_add_cuda_kernels(${target} ARCHITECTURES ${SHALE_CUDA_ARCHITECTURES} FILES ${files})
    shale_add_cuda_kernels(${target} ARCHITECTURES ${hopper_architectures} FILES ${hopper_files})
    target_link_libraries(${target} PRIVATE shale::kernels_cuda)
  endif()
endfunction()

# shale_split_kernel_files(<out> <out for Hopper> <file.cu>...): separates the files that have 90
# after the family's name. Only Hopper has the instructions that they use.
function(shale_split_kernel_files out out_hopper)
  set(files ${ARGN})
  set(hopper_files ${ARGN})
  list(FILTER files EXCLUDE REGEX "90(_[a-z0-9_]+)?[.]cu$")
  list(FILTER hopper_files INCLUDE REGEX "90(_[a-z0-9_]+)?[.]cu$")
  set(${out} ${files} PARENT_SCOPE)
  set(${out_hopper} ${hopper_files} PARENT_SCOPE)
endfunction()

# ---- The emulator: the host compiler compiles each .cu file through a generated .cpp file, because
# ---- in one folder CMake compiles a file in one language only.

# shale_emulated_sources(<source>...)
#
# Compiles these sources as kernels of the emulator. With -fsanitize=thread, the compiler calls a
# function at every load and store. The race tracker provides these functions
# (kernels/simt/engine/tracker_hooks.cpp), so no ThreadSanitizer library is linked. Builds with a
# sanitizer omit the tracker, because -fsanitize=address excludes thread. With -g1, reports can name
# source lines: addr2line finds the line of an instruction.
function(shale_emulated_sources)
  set(options)
  if(NOT SHALE_SANITIZE AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize=")
    set(options -fsanitize=thread -g1 -include ${SHALE_TRACKER_NAMES})
  endif()
  # Turns off warnings about "#pragma unroll", which only nvcc knows. Also turns off GCC's note that
  # very old versions passed tensor maps, which are aligned to 64 bytes, in another way.
  list(APPEND options -Wno-unknown-pragmas -Wno-psabi)
  set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS ${options})
endfunction()

# shale_add_emulated_kernels(<target> <file.cu>...): compiles .cu files for the emulator. Relative
# paths are relative to Shale's tree.
function(shale_add_emulated_kernels target)
  foreach(file IN LISTS ARGN)
    cmake_path(GET file STEM stem)
    set(included shale/${file})
    if(IS_ABSOLUTE ${file})
      set(included ${file})
    endif()
    set(wrapper ${PROJECT_BINARY_DIR}/emulated/${target}/${stem}.cpp)
    file(CONFIGURE OUTPUT ${wrapper} CONTENT "#include \"${included}\"\n")
    target_sources(${target} PRIVATE ${wrapper})
    shale_emulated_sources(${wrapper})
  endforeach()
endfunction()

# ---- CUDA: nvcc is called directly and its objects are added to ordinary targets. With CUDA
# ---- enabled as a language, the library would carry that language, and every project that links
# ---- Shale would have to enable it too.

# shale_hopper_architectures(<out> <architecture>...): gets the architectures for Hopper's files
# from the architectures for other files. They are PTX if those are all PTX. Hopper's own
# instructions exist only for 90a, and code for 90a runs on no other GPU.
function(shale_hopper_architectures out)
  set(architectures ${ARGN})
  list(FILTER architectures EXCLUDE REGEX "-virtual$")
  set(${out} 90a-virtual PARENT_SCOPE)
  if(architectures)
    set(${out} 90a-real PARENT_SCOPE)
  endif()
endfunction()

# shale_gencode(<out> <architecture>...): gets nvcc's flags for architectures such as 90a-real.
function(shale_gencode out)
  set(flags)
  foreach(architecture IN LISTS ARGN)
    if(NOT architecture MATCHES "^([0-9]+[af]?)(-real|-virtual)?$")
      message(FATAL_ERROR "CUDA architecture '${architecture}': expected one such as 90, 90-real, "
                          "90a-real or 80-virtual")
    endif()
    set(number ${CMAKE_MATCH_1})
    set(kind "${CMAKE_MATCH_2}")
    if(NOT kind STREQUAL "-virtual")
      list(APPEND flags -gencode=arch=compute_${number},code=sm_${number})
    endif()
    if(NOT kind STREQUAL "-real")
      list(APPEND flags -gencode=arch=compute_${number},code=compute_${number})
    endif()
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()

# shale_add_cuda_kernels(<target> ARCHITECTURES ... FILES ... [FLAGS ...]): compiles .cu files for
# these architectures, and adds the objects to the target. Relative paths begin at Shale's tree.
#
# ptxas's report on each kernel (registers, shared memory, stack, spills) is written next to its
# object, in cuda/<target>/<file>.ptxas.
function(shale_add_cuda_kernels target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "ARCHITECTURES;FILES;FLAGS")
  shale_gencode(gencode ${arg_ARCHITECTURES})
  set(flags
    -std=c++20 -O3
    -lineinfo                 # line numbers for profilers and compute-sanitizer; costs no speed
    --expt-relaxed-constexpr  # kernels may call constexpr functions of shared headers
    -fmad=false               # FMAs only where the code requests them, as on the CPU
    -Xptxas=-v
    -ccbin=${CMAKE_CXX_COMPILER}
    -Xcompiler=-fPIC,-Wall,-Wextra,-ffp-contract=off)
  if(arg_ARCHITECTURES MATCHES "(^|;)75")
    # adds tiles for the 64 KiB of shared memory of capability 7.5
    list(APPEND flags -DSHALE_TURING)
  endif()
  list(FILTER arg_ARCHITECTURES EXCLUDE REGEX "-virtual$")
  if(NOT arg_ARCHITECTURES)
    list(APPEND flags --no-compress)  # uncompressed, for tools that read or run the PTX
  endif()
  set(folder ${PROJECT_BINARY_DIR}/cuda/${target})
  file(MAKE_DIRECTORY ${folder})
  set(run_nvcc ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/RunNvcc.cmake)
  set(include_dirs $<REMOVE_DUPLICATES:$<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES>>)
  foreach(file IN LISTS arg_FILES)
    cmake_path(GET file STEM stem)
    cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE source)
    set(object ${folder}/${stem}.o)
    set(report ${folder}/${stem}.ptxas)
    add_custom_command(
      OUTPUT ${object} ${report}
      COMMAND ${CMAKE_COMMAND} -DREPORT=${report} -P ${run_nvcc} --
              ${CMAKE_CUDA_COMPILER_LAUNCHER} ${SHALE_NVCC}
              ${flags} ${arg_FLAGS} ${gencode} "-I$<JOIN:${include_dirs},;-I>"
              -MD -MF ${object}.d -c ${source} -o ${object}
      DEPENDS ${source} ${run_nvcc}
      DEPFILE ${object}.d
      COMMENT "Building CUDA object ${file}"
      COMMAND_EXPAND_LISTS
      VERBATIM)
    target_sources(${target} PRIVATE ${object})
    set_source_files_properties(${object} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  endforeach()
endfunction()

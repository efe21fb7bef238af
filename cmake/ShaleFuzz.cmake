# SHALE_FUZZ builds the readers of external files, with their fuzz targets, instrumented for
# libFuzzer. It needs Clang, but neither MPI, oneDNN nor Highway.

if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "SHALE_FUZZ needs Clang and its libFuzzer: set -DCMAKE_CXX_COMPILER=clang++")
endif()

find_package(Threads REQUIRED)
find_package(spdlog REQUIRED CONFIG)
find_package(nlohmann_json 3.9 REQUIRED CONFIG)

set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)

include(ShaleLayers)
# This build can read checkpoints but not save them, because saving needs libraries that it leaves
# out.
set(folders ${SHALE_base_FOLDERS} runtime/data runtime/data/corpus runtime/data/jinja
            runtime/data/text runtime/data/text/tokenizer runtime/data/tokens runtime/io comm/checkpoint models/gpt2 models/llama
            models/training/report models/views)
list(TRANSFORM folders APPEND "/*.cpp")
file(GLOB sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR} ${folders})
list(REMOVE_ITEM sources runtime/data/corpus/gzip_source.cpp runtime/data/corpus/zstd_source.cpp
                         comm/checkpoint/saver.cpp comm/checkpoint/training_state.cpp
                         models/gpt2/gpt2.cpp models/llama/llama.cpp)
list(APPEND sources comm/parallel/pipeline/schedule.cpp comm/parallel/pipeline/simulate.cpp
                    kernels/slot.cpp models/weights/hf_export.cpp models/weights/hf_extras.cpp
                    models/weights/hf_weights.cpp)
add_library(shale_parsers STATIC ${sources})
shale_add_page(shale_parsers)
target_include_directories(shale_parsers PUBLIC ${shale_include_dir})
target_link_libraries(
  shale_parsers
  PUBLIC Threads::Threads PRIVATE spdlog::spdlog nlohmann_json::nlohmann_json)
target_compile_definitions(
  shale_parsers PRIVATE SHALE_VERSION="${PROJECT_VERSION}" PUBLIC _GLIBCXX_ASSERTIONS)
target_compile_options(shale_parsers PUBLIC -g1 -fsanitize=fuzzer-no-link)

add_subdirectory(test/fuzz)

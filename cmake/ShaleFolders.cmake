# Folders of the source tree, for the build, the install rules and test/layering.cmake.

# Layers, lowest first; each is a folder of that name. A source may include headers of its own layer
# and of lower ones. Benchmarks and tests are above all layers.
set(SHALE_LAYERS base kernels runtime comm models)

# Source folders of each layer's library.
set(SHALE_base_FOLDERS base)
set(SHALE_kernels_FOLDERS kernels kernels/cpu kernels/cuda/cudnn)
set(SHALE_runtime_FOLDERS
  runtime/amp runtime/autograd runtime/export runtime/data runtime/data/chat runtime/data/corpus runtime/data/images runtime/data/jinja runtime/data/text
  runtime/data/text/tokenizer runtime/data/tokens runtime/io runtime/kernel_check runtime/nn runtime/offload runtime/ops runtime/optim runtime/tensor)
set(SHALE_comm_FOLDERS
  comm comm/checkpoint comm/groups comm/hosts comm/link comm/mpi comm/nccl comm/node comm/parallel comm/parallel/context comm/parallel/data
  comm/parallel/expert comm/parallel/pipeline comm/parallel/tensor comm/sums comm/watch)
set(SHALE_models_FOLDERS
  models models/gpt2 models/language models/llama models/plan models/training
  models/training/checks models/training/report models/weights)
# Parts of the layer `models` that train_lm does not need. Each is a library of its own: vision
# (images and diffusion), views (reports on runs), planning (plans of step times).
set(SHALE_vision_FOLDERS models/diffusion models/dit models/image models/resnet models/vit)
set(SHALE_views_FOLDERS models/tools/join models/tools/supervision models/views)
set(SHALE_planning_FOLDERS models/plan/time)

# Folders whose sources belong only to some builds or programs: replacements of libraries for
# SHALE_KERNELS_ONLY, the emulator, CUDA's kernels and their support, the tools of the program
# `shale`.
set(SHALE_bare_FOLDERS base/bare)
set(SHALE_emulator_FOLDERS kernels/simt/engine)
set(SHALE_cublaslt_FOLDERS kernels/cuda/gemm/cublaslt)
set(SHALE_nvrtc_FOLDERS kernels/cuda/nvrtc)
set(SHALE_cuda_FOLDERS kernels/simt/cuda)
# Code that loads the shared library with CUDA's kernels.
set(SHALE_cuda_loader_FOLDERS kernels/cuda/loader)
set(SHALE_cuda_kernel_FOLDERS
  kernels/cuda kernels/cuda/attention kernels/cuda/conv kernels/cuda/elementwise
  kernels/cuda/embedding
  kernels/cuda/gemm kernels/cuda/index kernels/cuda/loss kernels/cuda/moe kernels/cuda/norm
  kernels/cuda/optim kernels/cuda/pointwise kernels/cuda/reduce kernels/cuda/softmax)
set(SHALE_simt_FOLDERS kernels/simt kernels/simt/emu)  # these have headers only
set(SHALE_tool_FOLDERS models/tools)

# Bindings for other languages are above all layers, in a separate shared library.
set(SHALE_bindings_FOLDERS bindings/c)

# Sources with a main(), which are in folders of libraries.
set(SHALE_PROGRAMS models/train_diffusion.cpp models/train_image.cpp models/train_lm.cpp)

# In these libraries, a unity build compiles all sources of a folder together. Sources that use the
# same names in unnamed namespaces as others of their folder are excluded; test/unity.cmake looks
# for such names.
set(SHALE_UNITED base runtime comm models vision views planning)
set(SHALE_ALONE
  models/llama/gguf.cpp models/plan/plan_rank.cpp models/plan/time/layout_search.cpp
  models/plan/time/layouts.cpp models/training/parameter_groups.cpp models/views/trace_svg.cpp
  runtime/data/images/image_tars.cpp runtime/data/images/png.cpp runtime/data/jinja/methods.cpp
  runtime/ops/ffn.cpp runtime/ops/grouped_swiglu.cpp runtime/ops/swiglu.cpp
  runtime/optim/one_bit_adam.cpp runtime/tensor/upload_ring.cpp)

# Headers that may include third-party ones. A public header must not include these, or its users
# would need the third-party libraries.
set(SHALE_INTERNAL_HEADERS "^kernels/(cpu|cuda|simt)/|^models/tools/[^/]+$|_internal[.]h$|-inl[.]h$")

#include "shale/kernels/cuda/nvrtc/program.h"

#include <vector>

#include "shale/base/error.h"
#include "shale/kernels/cuda/nvrtc/library.h"
#include "shale/kernels/cuda/nvrtc/texts.h"
#include "shale/kernels/pointwise.h"

namespace shale::kernels::cuda::nvrtc {
namespace {

// Values that the prelude repeats from headers that NVRTC cannot read.
static_assert(static_cast<int>(DType::kF32) == 0 && static_cast<int>(DType::kBF16) == 1 &&
              static_cast<int>(DType::kF16) == 2 && static_cast<int>(DType::kU8) == 6);

std::string without_pragma(std::string text) {
  const std::string pragma = "#pragma once";
  const size_t at = text.find(pragma);
  return at == std::string::npos ? text : text.erase(at, pragma.size());
}

std::string limits() {
  return cat("constexpr int kMaxDims = ", kMaxDims,
             ";\nconstexpr int kMaxPointwiseInputs = ", kMaxPointwiseInputs,
             ";\nconstexpr int kMaxPointwiseOutputs = ", kMaxPointwiseOutputs, ";\n");
}

void check(const Library& library, nvrtcResult result, const char* what) {
  if (result == NVRTC_SUCCESS) return;
  throw InternalError(cat("nvrtc: ", what, ": ", library.get_error_string(result)));
}

class Program {
 public:
  Program(const Library& library, const std::string& source) : library_(library) {
    check(library,
          library.create_program(&program_, source.c_str(), "fused.cu", 0, nullptr, nullptr),
          "nvrtcCreateProgram");
  }
  ~Program() { library_.destroy_program(&program_); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void compile(const std::vector<const char*>& options) {
    const nvrtcResult result =
        library_.compile_program(program_, static_cast<int>(options.size()), options.data());
    if (result == NVRTC_SUCCESS) return;
    throw InternalError(cat("nvrtc: a fused kernel does not compile: ",
                            library_.get_error_string(result), "\n", log()));
  }

  std::string cubin() const {
    size_t bytes = 0;
    check(library_, library_.get_cubin_size(program_, &bytes), "nvrtcGetCUBINSize");
    std::string code(bytes, '\0');
    check(library_, library_.get_cubin(program_, code.data()), "nvrtcGetCUBIN");
    return code;
  }

 private:
  std::string log() const {
    size_t bytes = 0;
    check(library_, library_.get_log_size(program_, &bytes), "nvrtcGetProgramLogSize");
    std::string text(bytes, '\0');
    check(library_, library_.get_log(program_, text.data()), "nvrtcGetProgramLog");
    return text.c_str();
  }

  const Library& library_;
  nvrtcProgram program_ = nullptr;
};

}  // namespace

std::string whole_source(const std::string& kernel) {
  return cat(limits(), texts::kPrelude, without_pragma(texts::kPointwiseOp),
             "namespace shale::kernels {\n", texts::kLayout, texts::kOperands, texts::kFour,
             texts::kFunctions, "extern \"C\" ", kernel, "}\n");
}

std::string compile_to_cubin(const std::string& source, int arch) {
  const std::string architecture = cat("--gpu-architecture=sm_", arch);
  Program program(library(), source);
  program.compile({architecture.c_str(), "--std=c++20", "--fmad=false"});
  return program.cubin();
}

}  // namespace shale::kernels::cuda::nvrtc

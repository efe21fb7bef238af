#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "shale/runtime/nn/module.h"

namespace shale {

// Options of export_onnx().
struct OnnxOptions {
  // Names of the inputs and outputs. Empty: "input" and "output", or "input_0", "input_1", ...
  std::vector<std::string> input_names{}, output_names{};
  // Makes the first dimension free for all inputs whose first size is that of the first input.
  bool free_batch = true;
  std::map<std::string, std::string> metadata{};  // texts that the file carries, by name
  // Files above this size, in bytes, get their weights in a second file, PATH.data. Files of
  // 2 GiB always do: protocol buffers have no larger messages.
  int64_t max_file_bytes = int64_t{1} << 30;
};

// Description of a written file.
struct OnnxExport {
  int64_t nodes = 0;
  int64_t weight_bytes = 0;
  // Reason why the file has the batch size of the inputs; empty: the batch size is free.
  std::string fixed_batch;
};

// Writes the computation of `forward` to an ONNX file (operator set 17) with which onnxruntime and
// other programs compute the same without Shale. forward: calls the module and functions of ops.h;
// it runs up to four times in inference mode, with `inputs` and with these repeated along the first
// dimension. Every op reports what it computes (runtime/tensor/op_recorder.h). Parameters and
// buffers of `module` become initializers under their full names, other tensors constants. All
// tensors must be f32, i32 or u8 on one device, and layouts stay Shale's: images are [N, H, W, C].
// The file has the control flow of the recorded call.
//
// The file appears complete or not at all. With an empty path nothing is written: for ranks that
// only run forward together with the rank that writes. A parameter must have memory outside its
// module's forward: no ZeRO stage 3. Throws ConfigError for an op or a dtype that cannot be
// exported, for values that forward reads on the host, and for tensors whose origin is unknown;
// DataError for weights that are NaN; DiskError.
OnnxExport export_onnx(
    const Module& module,
    const std::function<std::vector<Tensor>(const std::vector<Tensor>& inputs)>& forward,
    const std::vector<Tensor>& inputs, const std::string& path, const OnnxOptions& options = {});

}  // namespace shale

#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "shale/runtime/export/onnx.h"

namespace shale::test {

// Contents of an ONNX file, as the tests' own reader finds them.
struct OnnxFile {
  struct Tensor {
    std::vector<int64_t> dims;  // -1: "batch"; other free sizes: -2
    int type = 0;
    int64_t bytes = -1;  // size of an initializer's values; -1: they are in another file
  };
  struct Node {
    std::string type;
    std::vector<std::string> inputs, outputs;
  };
  std::vector<Node> nodes;
  std::map<std::string, Tensor> initializers, inputs, outputs, values;
  std::map<std::string, std::string> metadata;
  int64_t ir = 0, opset = 0;

  int64_t count(const std::string& type) const;  // nodes of a type
};

// Reads a file and checks that it is well-formed: every name is defined once and before its use,
// every output exists, and the size of every initializer matches its shape. Throws DataError.
OnnxFile read_onnx(const std::string& path);

// Exports a forward and reads the file. If SHALE_ONNX_OUT names a folder, the file is kept there as
// NAME.onnx, with raw inputs and outputs for test/oracles/onnx_files.py, which NAME.txt lists. If
// the batch size is free, outputs are also computed for one more sample.
struct CheckedExport {
  OnnxExport result;
  OnnxFile file;
  // Number of nodes in the file of this name that onnxruntime has run
  // (test/oracles/onnx_files.txt); -1: the list lacks the name.
  int64_t frozen_nodes = -1;
};
CheckedExport check_export(
    const std::string& name, const Module& module,
    const std::function<std::vector<shale::Tensor>(const std::vector<shale::Tensor>&)>& forward,
    const std::vector<shale::Tensor>& inputs, const OnnxOptions& options = {});

}  // namespace shale::test

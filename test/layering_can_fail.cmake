# cmake -DSCRATCH=<folder> -P layering_can_fail.cmake: shows on small trees that the layering check
# finds errors, at the right line, and accepts correct trees.

include(${CMAKE_CURRENT_LIST_DIR}/expect.cmake)

# check(<what> <expected output, a regex, or OK> FILE <path> <content> [FILE <path> <content> ...])
function(check what expected)
  file(REMOVE_RECURSE ${SCRATCH})
  list(LENGTH ARGN count)
  set(i 0)
  while(i LESS count)
    math(EXPR path_index "${i} + 1")
    math(EXPR content_index "${i} + 2")
    list(GET ARGN ${path_index} path)
    list(GET ARGN ${content_index} content)
    file(WRITE ${SCRATCH}/${path} "${content}")
    math(EXPR i "${i} + 3")
  endwhile()

  expect("${what}" "${expected}" -DROOT=${SCRATCH} -P ${CMAKE_CURRENT_LIST_DIR}/layering.cmake)
  file(REMOVE_RECURSE ${SCRATCH})
endfunction()

check("downward includes" OK
  FILE kernels/norm.h "#include \"shale/base/view.h\"\n#include <vector>\n"
  FILE models/gpt2/gpt2.cpp "#include \"shale/comm/world.h\"\n#include <shale/models/gpt2/gpt2.h>\n")
check("kernels include a Tensor" "kernels/cpu/norm.cpp:3: kernels includes runtime/tensor/tensor.h"
  FILE kernels/cpu/norm.cpp "// A norm\n\n#include \"shale/runtime/tensor/tensor.h\"\n")
check("base includes kernels" "base/exec.h:1: base includes kernels/norm.h"
  FILE base/exec.h "#include \"shale/kernels/norm.h\"\n")
check("runtime includes comm" "runtime/nn/linear.cpp:2: runtime includes comm/world.h"
  FILE runtime/nn/linear.cpp "#include <vector>\n  #  include \"shale/comm/world.h\"  // why\n")
check("installed spelling" "comm/world.h:1: comm includes models/gpt2/gpt2.h"
  FILE comm/world.h "#include <shale/models/gpt2/gpt2.h>\n")
check("models include a test" "models/gpt2/gpt2.cpp:1: models includes test/support/ref.h"
  FILE models/gpt2/gpt2.cpp "#include \"shale/test/support/ref.h\"\n")
check("relative path" "kernels/norm.h:1: expected the header's whole name, .* found ../base/view.h"
  FILE kernels/norm.h "#include \"../base/view.h\"\n")
check("short name" "kernels/norm.h:1: expected the header's whole name, .* found kernels/gemm.h"
  FILE kernels/norm.h "#include <kernels/gemm.h>\n"
  FILE kernels/gemm.h "#include <vector>\n")
check("a public header in the tree" "comm/world.cpp:1: nn.h is for other programs"
  FILE comm/world.cpp "#include \"shale/nn.h\"\n")
check("third-party header in one for all" "comm/world.h:1: a header includes the third-party mpi.h"
  FILE comm/world.h "#include <mpi.h>\n")
check("third-party header in internal ones" OK
  FILE comm/mpi_internal.h "#include <mpi.h>\n"
  FILE kernels/cpu/simd.h "#include <hwy/highway.h>\n")
check("the JSON library in base/json.cpp" OK
  FILE base/json.cpp "#include <nlohmann/json.hpp>\n"
  FILE test/cli/json_value.cpp "#include <nlohmann/json.hpp>\n")
check("the JSON library in another source" "base/config.cpp:2: expected shale/base/json.h"
  FILE base/config.cpp "// Options\n#include <nlohmann/json.hpp>\n")
check("the JSON library in a test" "test/models/gpt2.cpp:1: expected shale/base/json.h"
  FILE base/json.cpp "#include <nlohmann/json.hpp>\n"
  FILE test/models/gpt2.cpp "#include <nlohmann/json_fwd.hpp>\n")
check("a layer that names an exchange" "runtime/nn/glu.cpp:3: is written for one rank"
  FILE runtime/nn/glu.cpp "#include <vector>\n\nTensor across(comm::Exchange& ranks)\n")
check("a model that includes one" "models/gpt2/gpt2.cpp:1: is written for one rank"
  FILE models/gpt2/gpt2.cpp "#include \"shale/comm/parallel/tensor/exchange.h\"\n")
check("a layer that asks its distribution" OK
  FILE runtime/nn/glu.cpp "#include \"shale/runtime/nn/distribution.h\"\n// LabelExchanges\n"
  FILE models/training/task.cpp "#include \"shale/comm/parallel/parallel.h\"\n")
check("a folder and what is inside it" OK
  FILE comm/factory.cpp "#include \"shale/comm/mpi/group.h\"\n"
  FILE comm/mpi/group.h "#include \"shale/comm/process_group.h\"\n"
  FILE comm/parallel/data/unit.h "#include \"shale/comm/process_group.h\"\n")
check("two folders around each other"
  "include from each other: runtime/ops/add.cpp includes runtime/amp/autocast.h"
  FILE runtime/ops/add.cpp "#include \"shale/runtime/amp/autocast.h\"\n"
  FILE runtime/amp/autocast.cpp "#include \"shale/runtime/ops/cast.h\"\n"
  FILE runtime/nn/module.cpp "#include \"shale/runtime/ops/cast.h\"\n")
check("three folders around each other, one by a folder inside"
  "include from each other: comm/parallel/data/unit.cpp includes comm/mpi/group.h"
  FILE comm/parallel/data/unit.cpp "#include \"shale/comm/mpi/group.h\"\n"
  FILE comm/mpi/group.cpp "#include \"shale/comm/node/memory.h\"\n"
  FILE comm/node/memory.cpp "#include \"shale/comm/parallel/data/unit.h\"\n")
check("an unlisted folder" "ShaleFolders.cmake has no folder runtime/misc"
  FILE runtime/misc/things.h "#include <vector>\n")
check("empty tree" "nothing was checked" FILE README.md "Shale\n")

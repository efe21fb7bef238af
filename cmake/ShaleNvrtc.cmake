# shale_add_nvrtc_texts(<target>): embeds, as texts, the headers that kernels need when they are
# compiled at run time (kernels/cuda/nvrtc/texts.h).
function(shale_add_nvrtc_texts target)
  set(names
    kPrelude kernels/cuda/nvrtc/prelude.cuh
    kPointwiseOp kernels/pointwise_op.h
    kLayout kernels/cuda/pointwise/operands_layout.h
    kOperands kernels/cuda/pointwise/operands_device.cuh
    kFour kernels/cuda/pointwise/four.cuh
    kFunctions kernels/pointwise_functions-inl.h)
  set(content "#include \"shale/kernels/cuda/nvrtc/texts.h\"\n\n")
  string(APPEND content "namespace shale::kernels::cuda::nvrtc::texts {\n")
  while(names)
    list(POP_FRONT names name file)
    set(file ${PROJECT_SOURCE_DIR}/${file})
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    string(APPEND content "const char* const ${name} = R\"shale(${text})shale\";\n")
  endwhile()
  string(APPEND content "}  // namespace shale::kernels::cuda::nvrtc::texts\n")
  set(source ${PROJECT_BINARY_DIR}/nvrtc_texts.cpp)
  file(GENERATE OUTPUT ${source} CONTENT "${content}")
  target_sources(${target} PRIVATE ${source})
endfunction()

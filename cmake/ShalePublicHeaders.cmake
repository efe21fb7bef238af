# Public headers are those that embedding programs include. The install rules and the tests use
# these lists. A test compares include/ with them.

cmake_policy(VERSION 3.25)

# Headers include/shale/<name>, included as <shale/name>. Their names are stable; headers that they
# include may move within the tree, and are installed under shale/detail/.
set(SHALE_PUBLIC_HEADERS
  amp.h autograd.h base.h checkpoint.h comm.h data.h io.h kernels.h language.h mpi.h nn.h offload.h
  ops.h optim.h parallel.h shale.h tensor.h training.h)

# Public headers for C, and for languages that call C; the library is in cmake/ShaleC.cmake.
set(SHALE_C_HEADERS c.h)

# Public headers that include a header of another library, which programs then need too.
set(SHALE_MPI_HEADERS mpi.h comm/mpi_communicator.h)

# Public headers for .cu files with kernels, which shale_add_kernels() compiles for CUDA and the
# emulator.
set(SHALE_SIMT_HEADERS simt/hopper.h simt/simt.h)
# The compiler options of shale_add_kernels() include this header.
set(SHALE_SIMT_SUPPORT kernels/simt/engine/tracker_names.h)

# shale_header_file(<out> <name>): gets the path of the header <shale/name> in the tree.
function(shale_header_file out name)
  set(file ${name})
  if(name IN_LIST SHALE_PUBLIC_HEADERS OR name IN_LIST SHALE_SIMT_HEADERS
     OR name IN_LIST SHALE_C_HEADERS)
    set(file include/shale/${name})
  endif()
  set(${out} ${file} PARENT_SCOPE)
endfunction()

# shale_included_headers(<out> <file>): gets the headers <shale/name> that a file includes, by name.
function(shale_included_headers out file)
  file(STRINGS ${file} lines REGEX "^[ \t]*#[ \t]*include[ \t]*[\"<]shale/")
  list(TRANSFORM lines REPLACE ".*[\"<]shale/([^\">]*)[\">].*" "\\1")
  set(${out} ${lines} PARENT_SCOPE)
endfunction()

# shale_headers_brought(<out> <root> <name>...): gets, by name, these headers and all headers that
# they include, directly or indirectly, in the tree at <root>.
function(shale_headers_brought out root)
  set(found ${ARGN})
  set(queue ${ARGN})
  while(queue)
    list(POP_FRONT queue name)
    shale_header_file(file ${name})
    shale_included_headers(included ${root}/${file})
    foreach(header IN LISTS included)
      if(NOT header IN_LIST found)
        list(APPEND found ${header})
        list(APPEND queue ${header})
      endif()
    endforeach()
  endwhile()
  list(SORT found)
  set(${out} ${found} PARENT_SCOPE)
endfunction()

# The C interface (include/shale/c.h): a shared library that exports only its functions, a CMake
# target shale::c, and a pkg-config file.

include(GNUInstallDirs)
set(SHALE_C_SOVERSION 1)  # equal to SHALE_API_MAJOR in c.h

list(TRANSFORM SHALE_bindings_FOLDERS APPEND "/*.cpp" OUTPUT_VARIABLE bindings_sources)
file(GLOB bindings_sources CONFIGURE_DEPENDS ${bindings_sources})
add_library(shale_c SHARED ${bindings_sources})
add_library(shale::c ALIAS shale_c)
target_include_directories(shale_c INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)

# The library exports exactly the functions that the header declares.
set(c_header ${PROJECT_SOURCE_DIR}/include/shale/c.h)
set(exports_map ${PROJECT_BINARY_DIR}/shale_c.map)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${c_header})
file(STRINGS ${c_header} declarations REGEX "^SHALE_API .*shale_[a-z0-9_]+[(]")
set(exports)
foreach(declaration IN LISTS declarations)
  if(declaration MATCHES "(shale_[a-z0-9_]+)[(]")
    string(APPEND exports "    ${CMAKE_MATCH_1};\n")
  endif()
endforeach()
file(CONFIGURE OUTPUT ${exports_map}
  CONTENT "SHALE_${SHALE_C_SOVERSION} {\n  global:\n${exports}  local: *;\n};\n")
target_link_libraries(shale_c PRIVATE ${shale_code} MPI::MPI_C)
target_compile_definitions(shale_c PRIVATE
  SHALE_C_BUILD OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
target_link_options(shale_c PRIVATE
  -Wl,--version-script=${exports_map} -Wl,-z,defs -Wl,-z,nodelete ${shale_rpath})
set_target_properties(shale_c PROPERTIES
  EXPORT_NAME c
  LINK_DEPENDS ${exports_map}
  VERSION ${SHALE_C_SOVERSION}.0
  SOVERSION ${SHALE_C_SOVERSION}
  LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)

# The prefix is relative to the .pc file's own folder, so that the installation may be moved.
file(RELATIVE_PATH shale_pc_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${CMAKE_CURRENT_LIST_DIR}/shale_c.pc.in ${PROJECT_BINARY_DIR}/shale_c.pc @ONLY)
install(TARGETS shale_c EXPORT ShaleTargets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime
  NAMELINK_COMPONENT dev)
install(FILES ${PROJECT_BINARY_DIR}/shale_c.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT dev)

# Builds a wheel that has the Python module, the programs and this library.
find_program(SHALE_PYTHON_PROGRAM python3)
mark_as_advanced(SHALE_PYTHON_PROGRAM)
if(SHALE_PYTHON_PROGRAM)
  set(tree ${PROJECT_BINARY_DIR}/wheel/tree)
  add_custom_target(shale_wheel
    COMMAND ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --component runtime --prefix ${tree}
    COMMAND ${SHALE_PYTHON_PROGRAM} ${PROJECT_SOURCE_DIR}/bindings/python/build_wheel.py
            --tree ${tree} --version ${PROJECT_VERSION} --out ${PROJECT_BINARY_DIR}/wheel
    DEPENDS shale_c shale_tool shale_option_files
    VERBATIM)
endif()

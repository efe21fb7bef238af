# shale_embed(<target> <folder> <type> <function> <header>): compiles the JSON files in a folder of
# deploy/ into the target. <function>() returns them as a span of <type>, each with name and text.
function(shale_embed target folder type function header)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/deploy/${folder}/*.json)
  set(rows)
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    get_filename_component(name ${file} NAME_WLE)
    string(APPEND rows "    {\"${name}\", R\"shale(${text})shale\"},\n")
  endforeach()
  set(source ${PROJECT_BINARY_DIR}/${folder}.cpp)
  file(GENERATE OUTPUT ${source} CONTENT
"#include \"shale/${header}\"

namespace shale::models {

std::span<const ${type}> ${function}() {
  static const ${type} files[] = {
${rows}  };
  return files;
}

}  // namespace shale::models
")
  target_sources(${target} PRIVATE ${source})
endfunction()

shale_embed(shale_models recipes RecipeFile recipe_files models/training/recipes.h)
shale_embed(shale_planning clusters ClusterFile cluster_files models/plan/time/cluster.h)

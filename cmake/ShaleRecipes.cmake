# shale_add_recipes(<target>): embeds the files of deploy/recipes (models/training/recipes.h).
function(shale_add_recipes target)
  file(GLOB files CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/deploy/recipes/*.json)
  set(rows)
  foreach(file IN LISTS files)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} text)
    get_filename_component(name ${file} NAME_WLE)
    string(APPEND rows "    {\"${name}\", R\"shale(${text})shale\"},\n")
  endforeach()
  set(source ${PROJECT_BINARY_DIR}/recipes.cpp)
  file(GENERATE OUTPUT ${source} CONTENT
"#include \"shale/models/training/recipes.h\"

namespace shale::models {

std::span<const RecipeFile> recipe_files() {
  static const RecipeFile files[] = {
${rows}  };
  return files;
}

}  // namespace shale::models
")
  target_sources(${target} PRIVATE ${source})
endfunction()

#include "shale/models/training/recipes.h"

#include <utility>
#include <vector>

#include "shale/base/text.h"

namespace shale::models {
namespace {

// Returns the last value of a flag; empty: it is not given.
std::string_view value_of(std::string_view flag, int argc, const char* const* argv) {
  std::string_view value;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == flag && i + 1 < argc) value = argv[i + 1];
    if (argument.starts_with(flag) && argument.substr(flag.size()).starts_with("=")) {
      value = argument.substr(flag.size() + 1);
    }
  }
  return value;
}

}  // namespace

void describe(ConfigSpec& spec, RecipeChoice& choice, std::string_view program) {
  std::vector<std::string> names = {"none"};
  for (const RecipeFile& file : recipe_files()) {
    const Json recipe = Json::parse(file.text, {}, file.name);
    if (program.empty() || recipe["program"].text() == program) names.emplace_back(file.name);
  }
  spec.section("Recipe");
  spec.add_choice("recipe", choice.recipe, std::move(names),
                  "options of a complete example run; --config and flags override them")
      .may_change()
      .basic("options of a complete example run; see --scale");
  spec.add_choice("scale", choice.is_small, {{"full", false}, {"small", true}},
                  "size of the recipe; small: minutes on a CPU, with a smaller model")
      .may_change();
  spec.needs("scale", "--recipe");
}

Json find_recipe(int argc, const char* const* argv) {
  const std::string_view name = value_of("--recipe", argc, argv);
  for (const RecipeFile& file : recipe_files()) {
    if (name == file.name) return Json::parse(file.text, {}, cat("recipe ", name));
  }
  return nullptr;
}

ParseResult parse_with_recipe(ConfigSpec& spec, int argc, const char* const* argv) {
  const Json recipe = find_recipe(argc, argv);
  if (recipe.is_object()) {
    const std::string source = cat("recipe ", value_of("--recipe", argc, argv));
    // Throws for a recipe of another program.
    spec.read_json(Json{{"recipe", value_of("--recipe", argc, argv)}}.dump(), "command line");
    spec.read_json(recipe["options"].dump(), source);
    if (value_of("--scale", argc, argv) == "small") {
      spec.read_json(recipe["small"].dump(), cat(source, ", small"));
    }
  }
  return parse_config(spec, argc, argv);
}

}  // namespace shale::models

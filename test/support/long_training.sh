# Sourced by long tests, with their arguments BUILD_DIR [STEPS [FLAG...]]. Sets the variables train
# (the program), steps, model (the model's flags; default: 10 million parameters) and data (the C++
# headers). Changes to the folder $work (work_folder.sh).
train="$(cd "$1/bin" && pwd)/train_lm"
steps=${2:-1000}
model=("${@:3}")
[[ ${#model[@]} -gt 0 ]] || model=(--layers 6 --width 384 --heads 6)
source "$(dirname "${BASH_SOURCE[0]}")/work_folder.sh"
cd "$work"

# Training data: the C++ standard library's headers, as in quickstart.sh.
data=$(printf '#include <vector>\n' | g++ -x c++ -fsyntax-only -H - 2>&1 |
  sed -n 's|^\. \(/.*\)/vector$|\1|p')

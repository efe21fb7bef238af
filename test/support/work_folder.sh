# Sourced by long tests. Sets work to $FOLDER, whose files are kept, or without FOLDER to a folder
# that is removed at the end.
if [[ -n ${FOLDER:-} ]]; then
  mkdir -p "$FOLDER"
  work=$(cd "$FOLDER" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi

# Sourced by long tests: work, the folder $FOLDER if that is set, where what they have made stays, else
# one that is removed at the end.
if [[ -n ${FOLDER:-} ]]; then
  mkdir -p "$FOLDER"
  work=$(cd "$FOLDER" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi

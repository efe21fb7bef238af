# Long tests source this file. It sets work to $FOLDER if that is given, whose files are kept, else
# to a folder that is removed at the end.
if [[ -n ${FOLDER:-} ]]; then
  mkdir -p "$FOLDER"
  work=$(cd "$FOLDER" && pwd)
else
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
fi

#!/bin/sh
# Beside its place, then renamed: killed half-way and run again it ends the same.
. "$(dirname "$0")/file.sh"
mkdir -p "$(dirname "$path")"
text > "$path.new"
mv "$path.new" "$path"
echo "wrote $path"

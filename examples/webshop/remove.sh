#!/bin/sh
. "$(dirname "$0")/file.sh"
rm -f "$path"
echo "removed $path"

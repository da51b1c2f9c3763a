#!/bin/sh
# Prints the state. A file with another text: outdated.
. "$(dirname "$0")/file.sh"
if [ ! -e "$path" ]; then
    echo absent
elif text | cmp -s - "$path"; then
    echo present
else
    echo outdated
fi

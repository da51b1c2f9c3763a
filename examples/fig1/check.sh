#!/bin/sh
# Prints the state: what is installed, and whether it is the content that is wanted.
installed="$COB_STATE_DIR/installed"
if [ ! -e "$installed" ]; then
    echo down
elif cmp -s "$installed" "$COB_CONTENT"; then
    echo up
else
    echo outdated
fi

#!/bin/sh
# Prints the state. Content other than the one that it was started with: outdated.
state="$COB_STATE_DIR/content"
if [ ! -e "$state" ]; then
    echo down
elif cmp -s "$state" "$COB_CONTENT"; then
    echo up
else
    echo outdated
fi

#!/bin/sh
# Prints the state and changes nothing.
if [ ! -e "$COB_STATE_DIR/up" ]; then
    echo down
elif cmp -s "$COB_STATE_DIR/up" "$COB_CONTENT"; then
    echo up
else
    echo outdated
fi

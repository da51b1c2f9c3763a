#!/bin/sh
# Prints the state. Content other than the one that it was started with: outdated.
started="$COB_STATE_DIR/started"
if [ ! -e "$started" ]; then
    echo down
elif sha256sum < "$COB_CONTENT" | cmp -s - "$started"; then
    echo up
else
    echo outdated
fi

#!/bin/sh
# Run twice it ends the same. What is noted is written beside its place and renamed over it: only a hash of the
# content, to know it again; the content itself may hold secrets and lies in memory.
set -e
sha256sum < "$COB_CONTENT" > "$COB_STATE_DIR/started.new"
mv "$COB_STATE_DIR/started.new" "$COB_STATE_DIR/started"
echo "$COB_ID went from $COB_FROM to $COB_TO"

#!/bin/sh
# Run twice it ends the same: the content is written beside its place and renamed over it.
set -e
cp "$COB_CONTENT" "$COB_STATE_DIR/content.new"
mv "$COB_STATE_DIR/content.new" "$COB_STATE_DIR/content"
echo "$COB_ID went from $COB_FROM to $COB_TO"

#!/bin/sh
# Writes beside the place and renames: killed half-way and run again it ends the same.
set -e
echo "$COB_ID $COB_FROM -> $COB_TO" >> "$COB_STATE_DIR/log"
cp "$COB_CONTENT" "$COB_STATE_DIR/installed.new"
mv "$COB_STATE_DIR/installed.new" "$COB_STATE_DIR/installed"

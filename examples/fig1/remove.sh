#!/bin/sh
set -e
echo "$COB_ID $COB_FROM -> $COB_TO" >> "$COB_STATE_DIR/log"
rm -f "$COB_STATE_DIR/installed"

#!/bin/sh
set -e
rm -f "$COB_STATE_DIR/started"
echo "$COB_ID went from $COB_FROM to $COB_TO"

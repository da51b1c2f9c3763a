#!/bin/sh
# Writes down what it would do: one line for each action, in the change object's own folder.
set -e
name=${COB_ID#*/}
echo "$COB_ACTION ${name%/*}" >> "$COB_STATE_DIR/log"

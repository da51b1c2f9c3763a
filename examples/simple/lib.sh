# What the scripts of this example share. State is kept in COB_STATE_DIR alone:
#   up        the content that it was switched on with; there is no such file while it is down

set -e

# The content is canonical JSON, one line without blanks: {"log":"/tmp/cob-simple.log"}.
log=$(sed -n 's/.*"log":"\([^"]*\)".*/\1/p' "$COB_CONTENT")

# One short line is one write, so lines of several actions don't mix.
note() {
    if [ -n "$log" ]; then
        echo "$1 $COB_ID $COB_FROM $COB_TO $(date +%s%N)" >> "$log"
    fi
}

# Beside its place, then renamed: killed half-way and run again it ends the same.
switch_on() {
    cp "$COB_CONTENT" "$COB_STATE_DIR/up.new"
    mv "$COB_STATE_DIR/up.new" "$COB_STATE_DIR/up"
}

switch_off() {
    rm -f "$COB_STATE_DIR/up"
}

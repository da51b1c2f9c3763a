#!/usr/bin/env bash
# `cobctl watch` in a real terminal, against the three daemons of `cobctl demo`: keys, sizes, signals, the stop by the shell,
# a switch that fails, the way from a waiting object to the cause, a daemon that dies.
#
#   tests/watch.sh            needs the programs in target/debug (or COB_BIN); without tmux it skips itself
#   tests/watch.sh FOLDER     also leaves captures of `watch` and `status` there
set -eu
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bin=$(realpath "${COB_BIN:-target/debug}")
if ! command -v tmux >/dev/null; then
    echo "skipped: tmux is not installed"
    exit 0
fi
captures=${1:-}
[ -z "$captures" ] || { mkdir -p "$captures" && captures=$(realpath "$captures"); }
unset COB_DEPOT COB_SOCKET COB_KEY COB_CONFIG COB_PUBLISHER_KEY NO_COLOR TMUX
export LC_ALL=C.UTF-8
work=$(mktemp -d)
demo=$work/demo
terminal() { tmux -u -S "$work/tmux" -f /dev/null "$@"; }
end() {
    terminal kill-server 2>/dev/null || true
    "$bin/cobctl" demo --end "$demo" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap end EXIT

screen() { terminal capture-pane -p -t watch; }
keys() { terminal send-keys -t watch "$@"; }
fail() {
    echo "FAULT: $*" >&2
    screen >&2
    exit 1
}
# shows REGEX: waits until a line of the screen matches.
shows() {
    local limit=$((SECONDS + ${PATIENCE:-60}))
    until screen | grep -qE -- "$1"; do
        [ $SECONDS -lt $limit ] || fail "the screen never showed: $1"
        sleep 0.1
    done
}
# is VALUE COMMAND...: waits until a command prints this value.
is() {
    local wanted=$1 limit=$((SECONDS + ${PATIENCE:-60}))
    shift
    until [ "$("$@")" = "$wanted" ]; do
        [ $SECONDS -lt $limit ] || fail "$* never printed $wanted"
        sleep 0.1
    done
}
lines() { screen | grep -c . || true; }
# An empty screen with a prompt: the command before has ended.
fresh() {
    shows '^ready>$'
    keys 'clear' Enter
    is 1 lines
}
take() { [ -z "$captures" ] || screen >"$captures/$1.txt"; }
size() {
    terminal resize-window -t watch -x "$1" -y "$2"
    is "$1x$2" terminal display -p -t watch '#{pane_width}x#{pane_height}'
}
# The board has the alternate screen, and gives it back.
has_screen() { is "$1" terminal display -p -t watch '#{alternate_on}'; }
# The process of the board.
board() { pgrep -f -- "--depot $demo/depot watch"; }

"$bin/cobctl" demo --keep "$demo" >"$work/demo.log" 2>&1 || { cat "$work/demo.log"; exit 1; }
terminal new-session -d -s watch -x 80 -y 24 "env PS1='ready> ' PATH='$bin:$PATH' COB_DEPOT= bash --norc --noprofile -i"
terminal set-option -t watch remain-on-exit on
shows '^ready>'
keys "stty -g >$work/stty" Enter
watch="cobctl --depot $demo/depot watch"

echo "well: the verdict, the hosts, the objects, the last switch"
keys "$watch" Enter
has_screen 1
shows '\[1 Cluster\].*generation 3'
shows '^. ✓ OK: generation 3 has converged on 3 hosts'
shows '✓ n2 +3 +1 of 1 +converged'
take watch-well-80
keys 3
shows 'No switch runs. The last one led to generation 3'
shows '✓S n1/db/server '

echo "a switch: its progress, the failure, from the waiting object to the cause"
sed -i 's#--config, "{{ folder }}/db.conf"#--config, "{{ folder }}/missing.conf"#' "$demo/model/model.yaml"
"$bin/cobgen" generate "$demo/model/model.yaml" --depot "$demo/depot" --message "a missing file" >"$work/generate.log" 2>&1
"$bin/cobctl" --depot "$demo/depot" switch 4 --on-failure hold >"$work/switch.log" 2>&1 &
ordered=$!
shows 'The switch to generation 4 is under way'
shows 'Interrupted \([0-9]+\)'
take watch-switch-80
wait $ordered || true
keys 2
shows '^. ✗F n1/db/server +[a-z]+ → up +failed'
take watch-objects-80
keys / l b /
shows '/lb/▏ [0-9]+ objects?'
keys s e r v e r Enter
shows '^▸ ◦W n3/lb/server'
keys Enter
shows '^ n3/lb/server$'
shows ' 1\. ◦W n3/lb/server: waits for n[23]/app/server up'
shows '✗F n1/db/server: failed after'
shows '← first cause'
take watch-why-80
keys c
shows '^ n1/db/server  ← n3/lb/server'
shows 'missing.conf'
keys Escape
shows '^ n3/lb/server$'
keys Escape
shows '^ /lb/server \(1 object\), Esc clears'
keys Escape
shows '✓S n1/db/config'

echo "every size, and the help"
size 200 50
shows 'generation 4 +[0-9:]{8}Z$'
shows 'COB +STATE +ACTIVITY +FOR +WAITS FOR'
take watch-objects-200
size 40 10
shows '^ 1 Cluster \[2 Objects\] 3 Switch'
shows '✗F n1/db/server'
keys '?'
shows 'Keys and marks'
keys x
size 80 24
keys 1
shows '\[1 Cluster\]'

echo "a daemon dies"
# The daemon is the process of the demo that has this configuration.
kill -KILL "$(pgrep -f -- "$demo/n2\.toml" | head -n 1)"
shows '\? n2 +[34–].* unreachable'
shows 'n2 could not be reached|Next: systemctl status cobd on n2|Next: cobctl explain n1/db/server'
keys 2
shows '^. \?U n2/app/server'
keys 1
take watch-lost-80

echo "stopped by the shell, and continued"
keys C-z
shows 'Stopped'
has_screen 0
keys 'fg' Enter
has_screen 1
shows '\[1 Cluster\]'
keys C-l
shows '\[1 Cluster\]'

echo "ended by a key and by signals, with the terminal as before"
keys q
has_screen 0
shows '^unknown whether converged'
keys "stty -g | cmp - $work/stty && echo kept" Enter
shows '^kept$'
for signal in TERM:143 HUP:129 INT:0; do
    fresh
    keys "$watch; echo \"ended with \$?\"" Enter
    has_screen 1
    shows '\[1 Cluster\]'
    kill -"${signal%:*}" "$(board)"
    has_screen 0
    shows "^ended with ${signal#*:}$"
done

echo "colours only where they are wanted"
fresh
keys "$watch n1" Enter
shows '✗ n1'
terminal capture-pane -e -p -t watch | grep -q $'\e\[38;5;1m' || fail "a failed host is not red"
keys q
has_screen 0
fresh
keys "NO_COLOR=1 $watch n1" Enter
shows '✗ n1'
! terminal capture-pane -e -p -t watch | grep -qE $'\e\\[([34]8;|[34][1-7]m)' || fail "NO_COLOR has colours"
keys q
has_screen 0

echo "lines in a pipe, with --plain and with --json"
fresh
keys "$watch n1 | head -n 1 | cut -c 1-60" Enter
shows '^[0-9-]{10} [0-9:.]+Z +n1: generation 4, '
has_screen 0
fresh
keys "$watch --plain n1" Enter
shows '^[0-9-]{10} [0-9:.]+Z +n1: generation 4, '
has_screen 0
keys C-c
shows 'not converged: n1: 1 change object'
fresh
keys "$watch --json n1 | head -n 1 | cut -c 1-20" Enter
shows '^\{"hosts":\['
for wide in 80 200; do
    size $wide 40
    fresh
    keys "cobctl --depot $demo/depot status" Enter
    shows 'HOST +GENERATION'
    shows '^ready>$'
    take status-$wide
done
echo "passed"

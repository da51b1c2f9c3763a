#!/bin/sh
# A plug-in in shell: keeps one line in a file, and puts back what was there before.
#
# One message comes as one line of JSON, one reply goes out. Without a JSON tool the few values that are needed are cut
# out with sed; that does for values without quotes and backslashes.
message=$(cat)
word() { printf '%s' "$message" | sed -n "s/.*\"$1\":\"\([^\"\\\\]*\)\".*/\1/p"; }
reply() { printf '{"cob_plugin": 1, %s}\n' "$1"; exit 0; }
fail() { reply "\"error\": \"$1\""; }

call=$(word call) file=$(word file) line=$(word line) dir=$(word state_dir)

case $call in
describe)
    reply '"states": ["down", "up", "outdated"]' ;;
check)
    if [ -z "$file" ] || [ -z "$line" ]; then fail "config needs a file and a line"; fi
    if [ ! -e "$dir/before" ] && [ ! -e "$dir/nothing-before" ]; then reply '"state": "down"'; fi
    found=$(cat "$file" 2>/dev/null)
    if [ "$found" = "$line" ]; then reply '"state": "up", "exports": {"file": "'"$file"'"}'; fi
    reply '"state": "outdated", "difference": "the file says something else"' ;;
transition)
    case $(word to) in
    up)
        # What was there is kept before anything is changed, whole, and only the first time.
        if [ ! -e "$dir/before" ] && [ ! -e "$dir/nothing-before" ]; then
            if [ -e "$file" ]; then
                cp -p "$file" "$dir/new" && mv "$dir/new" "$dir/before" || fail "can't keep $file"
            else
                : > "$dir/nothing-before" || fail "can't write to $dir"
            fi
        fi
        printf '%s\n' "$line" > "$file.cob-new" && mv "$file.cob-new" "$file" || fail "can't write $file"
        reply '"done": true, "exports": {"file": "'"$file"'"}' ;;
    down)
        if [ -e "$dir/before" ]; then
            cp -p "$dir/before" "$file.cob-new" && mv "$file.cob-new" "$file" || fail "can't put $file back"
        elif [ -e "$dir/nothing-before" ]; then
            rm -f "$file" || fail "can't remove $file"
        fi
        rm -f "$file.cob-new" "$dir/new" "$dir/before" "$dir/nothing-before"
        reply '"done": true' ;;
    esac
    fail "no such move" ;;
*)
    fail "no such call" ;;
esac

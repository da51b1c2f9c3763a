# Makes this host a member. The token comes on the standard input. Arguments: the server's address, yes or no for --follow.
lock
follow=
[ "$2" != yes ] || follow=--follow
# shellcheck disable=SC2086 # none or one word
said=$("$cobd" join "$1" - --config "$config" --state-dir "$state" --wait 0 $follow 2>&1 9>&-) ||
    fail "$(printf '%s' "$said" | tr -s '[:space:]' ' ')"
look

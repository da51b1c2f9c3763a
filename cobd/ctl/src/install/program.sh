# Puts the program cobd and its unit in place; the program comes on the standard input. Arguments: its SHA-256, the unit,
# the version that it must have (none: any).
lock
new=$alone.cob-install
trap 'rm -f "$new" "$unit.cob-install"' EXIT
# Also where nobody reads any more what is said: the shell would end at once.
trap 'exit 1' HUP INT TERM PIPE
mkdir -p "${alone%/*}" "${unit%/*}" || fail "can't make ${alone%/*}: is this root?"
# Nobody else's file is written into, should one come there meanwhile.
set -C
rm -f "$new" && cat > "$new" || fail "can't write $new: is the disk full?"
set +C
[ "$(sum_of "$new")" = "$1" ] || fail "the program did not arrive whole: give the same command again"
chmod 755 "$new"
said=$("$new" --version 2>&1) || fail "the program does not run on this host: $(printf '%s' "$said" | tr -s '[:space:]' ' ')"
[ -z "$3" ] || [ "$said" = "cobd $3" ] || fail "the program says $said, not cobd $3"
sync "$new" 2>/dev/null || sync
printf '%s' "$2" > "$unit.cob-install" || fail "can't write $unit: is the disk full?"
# The program first: a unit that is there has something to start.
mv -f "$new" "$alone" && mv -f "$unit.cob-install" "$unit" || fail "can't write $alone"
! have restorecon || restorecon "$alone" "$unit" >/dev/null 2>&1
cobd=$alone
systemctl daemon-reload >/dev/null 2>&1 9>&- || fail "systemd can't read its units: systemctl daemon-reload"
look

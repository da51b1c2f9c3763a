# Starts the daemon, now and at each boot, or starts it again. Arguments: start or restart, seconds to wait.
lock
systemctl enable cobd.service >/dev/null 2>&1 9>&- || fail "the unit can't be enabled: $(systemctl enable cobd.service 2>&1 | tail -n 1)"
systemctl reset-failed cobd.service >/dev/null 2>&1 9>&-
systemctl --no-block "$1" cobd.service >/dev/null 2>&1 9>&- || fail "the unit can't be started: $(systemctl --no-block "$1" cobd.service 2>&1 | tail -n 1)"
# A command that is queued is not yet one that is done.
left=$2
while [ "$left" -gt 0 ]; do
    now=$(systemctl show --value --property ActiveState cobd.service 2>/dev/null)
    job=$(systemctl show --value --property Job cobd.service 2>/dev/null)
    case $now/${job:-0} in
    active/0) break ;;
    failed/0) left=1 ;;
    esac
    sleep 1
    left=$((left - 1))
done
if [ "$left" -le 0 ]; then
    # What the daemon itself has said; else what systemd says of it.
    log=
    for match in _SYSTEMD_UNIT=cobd.service UNIT=cobd.service; do
        [ -n "$log" ] || log=$(journalctl -q -n 3 -o cat --no-pager "$match" 2>/dev/null | tr -s '[:space:]' ' ')
    done
    fail "the daemon is ${now:-unknown} and not active: ${log:-no log}"
fi
look

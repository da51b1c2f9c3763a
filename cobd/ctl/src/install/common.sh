# Before each script that installs: words for its answer, paths, one installation at a time. $1 is what stands before
# all paths (empty but for tests).
set -u
umask 022
root=$1
shift
export LC_ALL=C PATH="$root/test-bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
[ -n "$root" ] || PATH=${PATH#*:}
say() { printf 'cob:%s=%s\n' "$1" "$2"; }
fail() {
    say error "$1"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }
# The last words of a program, in a line.
tail_of() { tail -n 3 "$1" | tr -s '[:space:]' ' '; }
sum_of() { sha256sum < "$1" | cut -d ' ' -f 1; }

# The program of a package, and the one that was put there alone.
packaged=$root/usr/bin/cobd
alone=$root/usr/local/bin/cobd
unit=$root/etc/systemd/system/cobd.service
config=$root/etc/cob/cobd.toml
state=$root/var/lib/cob
cobd=$alone
[ -x "$alone" ] || cobd=$packaged

# Whoever was cut off may still be at work here. What it starts must not keep the lock.
lock() {
    mkdir -p "$root/run" && exec 9> "$root/run/cob-install.lock" || fail "can't write to $root/run: is this root?"
    ! have flock || flock -w 120 9 || fail "another installation of COB is under way on this host: try again later"
}

# What there is here.
look() {
    say arch "$(uname -m)"
    say uid "$(id -u)"
    [ ! -d "$root/run/systemd/system" ] || say systemd yes
    # The one by which the host itself was installed: the other may be there as a tool.
    if have apt-get && dpkg-query -W dpkg >/dev/null 2>&1; then
        say manager deb
        package=$(dpkg-query -W -f '${Version} ${db:Status-Status}' cob 2>/dev/null) && say package "$package"
    elif have rpm && rpm -q rpm >/dev/null 2>&1; then
        say manager rpm
        package=$(rpm -q --qf '%{VERSION}-%{RELEASE} installed' cob 2>/dev/null) && say package "$package"
    fi
    [ ! -f "$alone" ] || say alone "$(sum_of "$alone")"
    [ ! -f "$unit" ] || say unit "$(sum_of "$unit")"
    if [ -x "$cobd" ]; then
        say version "$("$cobd" --version 2>/dev/null | head -n 1)"
        [ ! -s "$state/identity.key" ] || say key "$("$cobd" init --state-dir "$state" 2>/dev/null)"
    fi
    [ ! -s "$state/identity.key" ] || say key_file yes
    if [ -e "$config" ]; then
        say configured yes
        head -c 16384 "$config" | while IFS= read -r line || [ -n "$line" ]; do say config "$line"; done
    fi
    if have systemctl; then
        for property in ActiveState UnitFileState StatusText MainPID; do
            say "$property" "$(systemctl show --value --property "$property" cobd.service 2>/dev/null)"
        done
        pid=$(systemctl show --value --property MainPID cobd.service 2>/dev/null)
        case $pid in
        '' | 0) ;;
        *) [ "$(sum_of "/proc/$pid/exe" 2>/dev/null)" != "$(sum_of "$cobd" 2>/dev/null)" ] || say current yes ;;
        esac
    fi
    echo cob:end
}

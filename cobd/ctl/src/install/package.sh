# Installs a package, which comes on the standard input. Arguments: its SHA-256, deb or rpm, and the version of an
# upgrade, which may lead to an older one.
lock
folder=$root/var/cache/cob-install
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
# Also where nobody reads any more what is said: the shell would end at once.
trap 'exit 1' HUP INT TERM PIPE
mkdir -p -m 0755 "$root/var/cache" && mkdir -m 0755 "$folder" || fail "can't make $folder: is this root?"
file=$folder/cob.$2
cat > "$file" || fail "can't write $file: is the disk full?"
[ "$(sum_of "$file")" = "$1" ] || fail "the package did not arrive whole: give the same command again"
# The package manager writes into a file: a connection that breaks does not stop it halfway.
downgrade= oldpackage= verb=install
if [ -n "$3" ]; then
    downgrade=--allow-downgrades oldpackage=--oldpackage
fi
# shellcheck disable=SC2086 # none or one word
case $2 in
deb)
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confold \
        --no-install-recommends $downgrade install "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    ;;
*)
    now=$(rpm -q --qf '%{VERSION}-%{RELEASE}' cob 2>/dev/null) || now=
    new=$(rpm -qp --nosignature --qf '%{VERSION}-%{RELEASE}' "$file" 2>/dev/null)
    # dnf and yum have another word for the way back.
    [ -z "$3" ] || [ -z "$now" ] || [ "$(printf '%s\n' "$now" "$new" | sort -V | tail -n 1)" = "$new" ] || verb=downgrade
    if have dnf; then
        dnf -q -y $verb "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    elif have yum; then
        yum -q -y $verb "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    elif have zypper; then
        zypper --non-interactive --quiet install --allow-unsigned-rpm $oldpackage "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    else
        rpm -U $oldpackage "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    fi
    ;;
esac || fail "the package can't be installed: $(tail_of "$folder/log")"
look

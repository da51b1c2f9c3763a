# Installs a package, which comes on the standard input. Arguments: its SHA-256, deb or rpm.
lock
folder=$root/var/cache/cob-install
rm -rf "$folder"
trap 'rm -rf "$folder"' EXIT
trap 'exit 1' HUP INT TERM
mkdir -p -m 0755 "$root/var/cache" && mkdir -m 0755 "$folder" || fail "can't make $folder: is this root?"
file=$folder/cob.$2
cat > "$file" || fail "can't write $file: is the disk full?"
[ "$(sum_of "$file")" = "$1" ] || fail "the package did not arrive whole: give the same command again"
# The package manager writes into a file: a connection that breaks does not stop it halfway.
case $2 in
deb)
    DEBIAN_FRONTEND=noninteractive apt-get -q -y -o DPkg::Lock::Timeout=120 -o Dpkg::Options::=--force-confold \
        --no-install-recommends install "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    ;;
*)
    if have dnf; then
        dnf -q -y install "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    elif have yum; then
        yum -q -y install "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    elif have zypper; then
        zypper --non-interactive --quiet install --allow-unsigned-rpm "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    else
        rpm -U "$file" > "$folder/log" 2>&1 < /dev/null 9>&-
    fi
    ;;
esac || fail "the package can't be installed: $(tail_of "$folder/log")"
look

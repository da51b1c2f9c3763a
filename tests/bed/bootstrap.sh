# Sourced by run.sh: `cobctl bootstrap` installs ten hosts with a real sshd each, half of them from a package and half
# with a program, over a network that is none of this machine's own. It is killed in the midst, and given again.
#
# sshd: COB_BED_SSHD names a folder with Debian's packages unpacked; else that of this machine; else it is taken out of
# the packages, which are kept below the target folder. How many hosts: COB_BED_HOSTS, 10 if it is not said.

sshd_folder() { # prints a folder as unpacked packages are
    local kept=$here/../../target/bed-sshd folder package
    for folder in "${COB_BED_SSHD:-}" "$kept"; do
        if [ -n "$folder" ] && [ -x "$folder/usr/sbin/sshd" ]; then
            echo "$folder"
            return
        fi
    done
    if [ -x /usr/sbin/sshd ]; then
        echo /
        return
    fi
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    mkdir -p "$kept"
    (cd "$kept" && timeout 60 apt-get -qq download openssh-server libwrap0 >/dev/null 2>&1) || return 1
    for package in "$kept"/*.deb; do
        dpkg-deb -x "$package" "$kept"
    done
    echo "$kept"
}

if ! command -v ssh >/dev/null || ! sshd=$(sshd_folder); then
    echo "skipped: bootstrap, for sshd is neither here nor to be had (no network?); COB_BED_SSHD names a folder with it"
    return 0
fi

count=${COB_BED_HOSTS:-10}
step "bootstrap: a host of the administrator's, and $count that have nothing but sshd"
bed down
bed up $((count + 1))
install_on h1
targets=""
for ((i = 2; i <= count + 1; i++)); do targets+=" h$i"; done
on h1 sh -c 'mkdir -p -m 700 ~root/.ssh && rm -f ~root/.ssh/* && ssh-keygen -q -t ed25519 -N "" -f ~root/.ssh/id_ed25519'
public=$(on h1 sh -c 'cat ~root/.ssh/id_ed25519.pub')
for host in $targets; do
    [ "$sshd" = / ] || (cd "$sshd" && find usr lib ! -type d ! -path '*/share/*' ! -path '*/systemd/*' -print0 |
        tar --owner=0 --group=0 --null --files-from=- -c) | on $host tar -C / -x --skip-old-files
    on $host sh -s "$public" <<'HOST'
set -e
ldconfig
getent passwd sshd >/dev/null || useradd --system --no-create-home --home-dir /run/sshd --shell /usr/sbin/nologin sshd
mkdir -p /etc/ssh ~root/.ssh
chmod 700 ~root/.ssh
echo "$1" > ~root/.ssh/authorized_keys
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -t ed25519 -N "" -f /etc/ssh/ssh_host_ed25519_key
cat > /etc/ssh/bed_config <<CONFIG
HostKey /etc/ssh/ssh_host_ed25519_key
PermitRootLogin prohibit-password
PasswordAuthentication no
UsePAM no
StrictModes no
CONFIG
systemd-run --quiet --unit=bed-sshd -p RuntimeDirectory=sshd /usr/sbin/sshd -D -f /etc/ssh/bed_config
# A profile that talks, as many do.
printf 'echo Welcome to this host; echo cob: >&2\n' > ~root/.bashrc
# Another login, that becomes root by sudo.
useradd --create-home --password '*' --shell /bin/bash admin
mkdir -p ~admin/.ssh && cp ~root/.ssh/authorized_keys ~admin/.ssh/ && chown -R admin: ~admin/.ssh
if command -v sudo >/dev/null; then echo "admin ALL=(ALL) NOPASSWD: ALL" > /etc/sudoers.d/admin; fi
# Packages start their services as they do on a machine.
rm -f /usr/sbin/policy-rc.d
HOST
    echo "$host $(on $host cat /etc/ssh/ssh_host_ed25519_key.pub)" | on h1 sh -c 'cat >> ~root/.ssh/known_hosts'
done

# A package of what is installed here, as `packaging/build.sh deb` makes one: only its list is shorter.
if [ "$how" = --deb ]; then
    put h1 /srv/cob.deb < "$what"
else
    scratch=$(mktemp -d)
    cp -r "$what/." "$scratch/"
    mkdir -p "$scratch/DEBIAN"
    printf 'Package: cob\nVersion: 0.1.0-1\nArchitecture: %s\nMaintainer: The bed\nDescription: COB\n' \
        "$(dpkg --print-architecture)" > "$scratch/DEBIAN/control"
    printf '#!/bin/sh\nsystemctl daemon-reload\n' > "$scratch/DEBIAN/postinst"
    chmod 755 "$scratch/DEBIAN/postinst"
    dpkg-deb --root-owner-group -Znone --build "$scratch" "$scratch.deb" >/dev/null
    put h1 /srv/cob.deb < "$scratch.deb"
    rm -rf "$scratch" "$scratch.deb"
fi

site=/srv/site
server=tcp://10.77.0.1:7070
depot=$site/depot
names=""
for host in $targets; do names+=" $host=10.77.0.${host#h}"; done
# shellcheck disable=SC2086 # several words
on h1 cobgen init --secure $site $names >/dev/null 2>&1
# The hosts and keys alone.
on h1 sh -c "cd $site && sed -i '/^# A kind says/,\$d' model.yaml && rm -f ./*.sh"
on h1 systemd-run --quiet --unit=cobgen-serve cobgen serve --depot $depot --listen $server
soon on h2 timeout 2 bash -c 'exec 3<>/dev/tcp/10.77.0.1/7070'
half=$((count / 2 + 1))
by_package="" by_program=""
# On the second half root does not log in, where there is sudo.
login="" become=""
if command -v sudo >/dev/null; then login=admin@ become=--sudo; fi
for host in $targets; do
    if [ "${host#h}" -le $half ]; then
        by_package+=" $host"
    else
        # A host without packages gets the program.
        on $host mv /var/lib/dpkg /var/lib/dpkg.away
        by_program+=" $host=$login$host"
    fi
done
bootstrap() { on h1 cobctl bootstrap --depot $depot --server $server "$@"; }
# All ten by one call.
all="--package /srv/cob.deb --binary /usr/bin/cobd $become $by_package $by_program"
runs() { [ "$(on "$1" systemctl is-active cobd) $(on "$1" systemctl is-enabled cobd)" = "active enabled" ]; }
nothing_left() { # no part of a file that was sent
    [ -z "$(on "$1" sh -c 'ls -d /usr/local/bin/cobd.* /etc/systemd/system/cobd.service.* /var/cache/cob-install 2>/dev/null')" ]
}

step "bootstrap: a wrong key, a wrong name and a host that is off are a line each, and change nothing"
fails_with "Host key verification failed" bootstrap --package /srv/cob.deb h2=10.77.0.2
fails_with "can't begin with" bootstrap --package /srv/cob.deb h2=-oProxyCommand=x
fails_with "not root" bootstrap --package /srv/cob.deb h2=admin@h2
fails_with "ssh can't connect" bootstrap --package /srv/cob.deb --connect-timeout 2s h99=10.77.0.99
fails on h2 test -e /usr/bin/cobd

step "bootstrap: cobctl is killed at different moments, and nothing is left half written"
last=h$((count + 1))
killed() { # HOST FILE ARGUMENTS: cobctl alone is killed as soon as such a file is there on a host; what it started is left
    local host=$1 file=$2
    on h1 rm -f /run/killed.pid
    on h1 bash -c 'echo $$ > /run/killed.pid; exec cobctl bootstrap --depot '$depot' --server '$server' "$@"' - "${@:3}" >/dev/null 2>&1 &
    local running=$!
    soon on h1 test -s /run/killed.pid
    soon on $host sh -c "ls $file | grep ."
    # On a slow machine it may have ended by then.
    on h1 sh -c 'kill -KILL $(cat /run/killed.pid) || true'
    wait $running || true
    # What was under way ends by itself.
    soon nothing_left $host
}
whole() { [ "$(on $last sh -c 'sha256sum < /usr/local/bin/cobd')" = "$(on h1 sh -c 'sha256sum < /usr/bin/cobd')" ]; }
# shellcheck disable=SC2086 # several words
{
    # The program is being sent; it is in place; the host has its key; on another one the package manager works.
    killed $last '/usr/local/bin/cobd*' $all
    ! on $last test -e /usr/local/bin/cobd || whole
    killed h2 '/var/cache/cob-install/log /usr/bin/cobd' $all
    killed $last /usr/local/bin/cobd $all
    whole
    killed $last /var/lib/cob/identity.key $all
}

step "bootstrap: the same command again ends well"
# shellcheck disable=SC2086 # several words
bootstrap $all
for host in $targets; do
    runs $host
    nothing_left $host
    [ "$(on $host stat -c '%a %U' /var/lib/cob/identity.key)" = "600 root" ]
done

step "bootstrap: a second run changes nothing"
same() { on "$1" sh -c 'md5sum /etc/cob/cobd.toml /var/lib/cob/identity.key; stat -c %Y $(ls /usr/bin/cobd /usr/local/bin/cobd 2>/dev/null); systemctl show -p MainPID cobd'; }
tokens() { on h1 sh -c "md5sum $depot/tokens.json $depot/enrolled.json"; }
before=$(for host in $targets; do same $host; done; tokens)
# shellcheck disable=SC2086 # several words
bootstrap $all --json | grep -c '"outcome": "unchanged"' | grep -qx $count
# Through a jump host, too.
says "1 unchanged" bootstrap --package /srv/cob.deb --ssh-option ProxyJump=h2 h3
[ "$before" = "$(for host in $targets; do same $host; done; tokens)" ]

step "bootstrap: the hosts converge"
{
    echo "cobs:"
    for host in $targets; do
        printf '  %s/note: {kind: file-tree, content: {files: {/srv/hello: {content: "hello\\n"}}}}\n' $host
    done
} | on h1 sh -c "cat >> $site/model.yaml"
on h1 cobgen generate $site --depot $depot --sign-with $site/keys/publisher.key
on h1 cobctl --depot $depot --key $site/keys/operator.key switch 1 --wait 2m
for host in $targets; do
    [ "$(on $host cat /srv/hello)" = hello ]
done

step "bootstrap: another machine does not take the name of a host that has enrolled"
on h2 sh -c 'systemctl stop cobd; rm -rf /var/lib/cob /etc/cob/cobd.toml'
fails_with "has enrolled with" bootstrap --package /srv/cob.deb h2
bootstrap --package /srv/cob.deb --replace h2
runs h2

step "upgrade: canaries first, and a version that does not come up ends it there"
# Other programs of the same version: what stands behind the end of a program is not read.
another() { # NUMBER COMMAND...: the package under a further number of its own, its program changed by a command
    local scratch
    scratch=$(mktemp -d)
    on h1 cat /srv/cob.deb > "$scratch/cob.deb"
    dpkg-deb -R "$scratch/cob.deb" "$scratch/tree"
    sed -i "s/^Version: .*/Version: 0.1.0-$1/" "$scratch/tree/DEBIAN/control"
    rm -f "$scratch/tree/DEBIAN/md5sums"
    "${@:2}" "$scratch/tree/usr/bin/cobd"
    dpkg-deb --root-owner-group -Znone --build "$scratch/tree" "$scratch/new.deb" >/dev/null
    put h1 "/srv/cob-$1.deb" < "$scratch/new.deb"
    rm -rf "$scratch"
}
longer() { echo longer >> "$1"; }
broken() { printf '#!/bin/sh\n[ "$1" != --version ] || echo cobd 0.1.0\n[ "$1" = --version ]\n' > "$1"; }
another 8 longer
another 9 broken
on h1 sh -c 'cp /usr/bin/cobd /srv/cobd && echo longer >> /srv/cobd'
upgrade() { on h1 cobctl upgrade "$@"; }
version_of() { on "$1" dpkg-query -W -f '${Version}' cob; }
pid_of() { unit "$1" MainPID; }
before=$(for host in $targets; do pid_of $host; done)
# shellcheck disable=SC2086 # several words
fails_with "the program says cobd 0.1.0, not cobd 0.9.9" upgrade --to 0.9.9 --binary /srv/cobd $become $by_program
# shellcheck disable=SC2086 # several words
fails_with "has the version 0.1.0-8, not 0.2.0" upgrade --to 0.2.0 --package /srv/cob-8.deb $by_package
[ "$before" = "$(for host in $targets; do pid_of $host; done)" ]
# h2 was set up anew, so its place in the cluster comes with the next generation.
on h1 cobgen generate $site --depot $depot --sign-with $site/keys/publisher.key
on h1 cobctl --depot $depot --key $site/keys/operator.key switch latest --wait 2m
before=$(pid_of h4)
# shellcheck disable=SC2086 # several words
fails_with "untouched" upgrade --to 0.1.0 --package /srv/cob-9.deb --canary h3 $by_package
[ "$(version_of h3) $(version_of h4) $(pid_of h4)" = "0.1.0-9 0.1.0-1 $before" ]

step "upgrade: the canary goes back, and all hosts come to another version and stay converged"
# shellcheck disable=SC2086 # several words
upgrade --to 0.1.0 --package /srv/cob-8.deb --canary h3 $by_package
# shellcheck disable=SC2086 # several words
upgrade --to 0.1.0 --binary /srv/cobd --batch 3 $become $by_program
for host in $by_package; do
    [ "$(version_of $host)" = 0.1.0-8 ]
done
for host in $targets; do
    runs $host
    says "converged" unit $host StatusText
done
# shellcheck disable=SC2086 # several words
says "0 changed" upgrade --to 0.1.0 --binary /srv/cobd $become $by_program
on h1 cobctl --depot $depot --key $site/keys/operator.key status >/dev/null

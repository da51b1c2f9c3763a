# Sourced by run.sh: a generation carries the version of the daemon. Each host has the package `cob` as a change object;
# a switch installs another version, first on a canary, and the daemon that makes the transition is restarted by it.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

if ! command -v dpkg-deb >/dev/null || [ ! -d /var/lib/dpkg ]; then
    echo "skipped: upgrades as a switch, for this is no machine with apt and dpkg"
    return 0
fi

step "upgrade as a switch: a repository with three versions of the daemon, and the first one on each host"
own_packages=$(mktemp -d)
# The package as `packaging/build.sh deb` makes it, with the scripts that cargo-deb writes for the unit; but its only files
# are the daemon and the unit. Programs of the dev profile say the same version: what stands behind the end of a program
# is not read.
make_cob() { # VERSION COMMAND...: the command changes the program
    local version=$1 tree file
    tree=$(mktemp -d) file=cob_$1_$(dpkg --print-architecture).deb
    mkdir -p "$tree/DEBIAN"
    on h1 tar -C / -c usr/bin/cobd "usr/lib/systemd/system/cobd.service" | tar -C "$tree" -x
    strip --strip-unneeded "$tree/usr/bin/cobd" 2>/dev/null || true
    "${@:2}" "$tree/usr/bin/cobd"
    printf 'Package: cob\nVersion: %s\nArchitecture: %s\nMaintainer: The bed <bed@example.org>\nDescription: COB\n' \
        "$version" "$(dpkg --print-architecture)" > "$tree/DEBIAN/control"
    cat > "$tree/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    [ -z "$2" ] || deb-systemd-invoke restart cobd.service >/dev/null || true
fi
SCRIPT
    chmod 755 "$tree/DEBIAN/postinst"
    dpkg-deb --build --root-owner-group -Znone "$tree" "$own_packages/$file" >/dev/null
    {
        dpkg-deb --field "$own_packages/$file"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$own_packages/$file")" \
            "$(sha256sum < "$own_packages/$file" | cut -d ' ' -f 1)"
    } >> "$own_packages/Packages"
    rm -rf "$tree"
}
longer() { echo longer >> "$1"; }
# It says its version, as a whole program does, and ends as soon as it is to run.
broken() { printf '#!/bin/sh\n[ "$1" != --version ] || exec echo cobd 0.1.0\necho "this daemon is broken" >&2\nexit 1\n' > "$1"; }
make_cob 0.1.0-1 true
make_cob 0.1.0-2 longer
make_cob 0.1.0-3 broken
for host in h1 h2 h3; do
    tar -C "$own_packages" -c . | on $host sh -c 'mkdir -p /srv/cob-packages && tar -C /srv/cob-packages --no-same-owner -x'
    on $host sh -c 'dpkg -i /srv/cob-packages/cob_0.1.0-1_*.deb' >/dev/null
    on $host systemctl restart cobd
done
rm -rf "$own_packages"

put h1 $site/daemon.yaml <<'MODEL'
variables:
  all: {daemon: 0.1.0-1}

services:
  daemon:
    cobs:
      package:
        kind: package
        content: {name: cob, version: "{{ daemon }}", repository: /srv/cob-packages, trusted: true}
  worker:
    cobs:
      runs: {kind: service, content: {start: "exec sleep 100000"}}

clusters:
  own:
    services:
      daemon: [h1, h2, h3]
      worker: [h1, h2, h3]
MODEL
daemon_is() { on h1 sed -i "s/^  all: {.*/  all: {daemon: $1}/" $site/daemon.yaml; }
cob_on() { on "$1" dpkg-query -W -f '${Version} ${db:Status-Status}' cob; }
runs_installed() { # the daemon that runs is the program that is installed
    [ "$(on "$1" sh -c 'sha256sum < "/proc/$(systemctl show --value --property MainPID cobd)/exe"')" = \
        "$(on "$1" sh -c 'sha256sum < /usr/bin/cobd')" ]
}
worker_of() { on "$1" pgrep -x -f 'sleep 100000'; }
switch_cluster
declare -A daemon_before worker_before
for host in h1 h2 h3; do
    daemon_before[$host]=$(unit $host MainPID)
    worker_before[$host]=$(worker_of $host)
done

step "upgrade as a switch: the canary first, then the other hosts; services run on"
daemon_is 0.1.0-2
publish_cluster
# The check sees the canary upgraded and the others not yet.
put h1 /srv/canary-check <<'CHECK'
#!/bin/sh
echo "$COB_CANARY" > /srv/canary-was
CHECK
on h1 chmod 755 /srv/canary-check
ctl switch $cluster_generation --canary h2 --gate 2s --check /srv/canary-check --on-failure rollback --wait 3m
[ "$(on h1 cat /srv/canary-was)" = h2 ]
for host in h1 h2 h3; do
    [ "$(cob_on $host)" = "0.1.0-2 installed" ]
    runs_installed $host
    [ "$(unit $host MainPID)" != "${daemon_before[$host]}" ]
    [ "$(worker_of $host)" = "${worker_before[$host]}" ]
    # Once, and without a failure.
    [ "$(ctl history --since-generation $cluster_generation --cob $host/daemon/package | grep -c ' start ')" = 1 ]
done
fails says FAILED ctl history --since-generation $cluster_generation
ctl history --since-generation $cluster_generation | grep daemon/package

step "upgrade as a switch: a daemon that does not come up makes way for the former one, and no other host gets it"
before=$(for host in h1 h3; do unit $host MainPID; done)
daemon_is 0.1.0-3
publish_cluster
fails_with "this daemon is broken" ctl switch $cluster_generation --canary h2 --gate 2s --on-failure rollback --wait 3m
for host in h1 h2 h3; do
    [ "$(cob_on $host)" = "0.1.0-2 installed" ]
    [ "$(worker_of $host)" = "${worker_before[$host]}" ]
done
runs_installed h2
[ "$before" = "$(for host in h1 h3; do unit $host MainPID; done)" ]
says "0.1.0-2 is installed again, and its daemon runs" ctl history --since-generation $cluster_generation --cob h2/daemon/package

step "upgrade as a switch: the model does not remove the daemon, and the package stays when it leaves the model"
daemon_is 0.1.0-1
on h1 sed -i 's/^        kind: package$/        kind: package\n        preferred: absent/' $site/daemon.yaml
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon says "which can't remove itself" ctl history --since-generation $cluster_generation --cob h3/daemon/package
on h1 rm $site/daemon.yaml
switch_cluster
for host in h1 h2 h3; do
    [ "$(cob_on $host)" = "0.1.0-2 installed" ]
    soon says "converged" unit $host StatusText
done

# Sourced by run.sh: a daemon from a package on h2 and h3: installed from a repository that h1 serves, configured,
# reloaded, upgraded, and removed. One model says all of it, the repository included, and no order of hosts.
#
# The package is made here, as Debian's tools make one: with a unit file, with a file of configuration that is the
# administrator's, and with scripts that enable and start the unit when it is installed.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

make_greeter() { # VERSION FOLDER: its package, and the list of the repository
    local version=$1 folder=$2 tree
    tree=$(mktemp -d)
    mkdir -p "$tree"/{DEBIAN,etc/greeter,usr/sbin,lib/systemd/system} "$folder"
    cat > "$tree/DEBIAN/control" <<CONTROL
Package: greeter
Version: $version
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: says a word
CONTROL
    echo /etc/greeter/greeter.conf > "$tree/DEBIAN/conffiles"
    printf '# as it is shipped with %s\ngreeting=nothing\n' "$version" > "$tree/etc/greeter/greeter.conf"
    cat > "$tree/usr/sbin/greeter" <<PROGRAM
#!/bin/sh
# Says what its configuration says, and its version, at its start and when it is told to look again.
say() {
    . /etc/greeter/greeter.conf
    echo "$version \$\$ \$greeting" > /run/greeter/said.new
    mv /run/greeter/said.new /run/greeter/said
}
trap say HUP
say
while :; do
    sleep 3600 &
    wait \$!
done
PROGRAM
    cat > "$tree/lib/systemd/system/greeter.service" <<'UNIT'
[Unit]
Description=Says a word
[Service]
ExecStart=/usr/sbin/greeter
ExecReload=/bin/kill -HUP $MAINPID
RuntimeDirectory=greeter
[Install]
WantedBy=multi-user.target
UNIT
    # What dh_installsystemd writes.
    cat > "$tree/DEBIAN/postinst" <<'SCRIPT'
#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if [ -e /var/lib/greeter-takes-long ]; then
        touch /run/greeter-is-configured
        sleep 3
    fi
    if [ "$(cat /var/lib/greeter-fails 2>/dev/null)" = @VERSION@ ]; then
        echo "no voice for @VERSION@" >&2
        exit 1
    fi
    deb-systemd-helper unmask greeter.service >/dev/null || true
    if deb-systemd-helper --quiet was-enabled greeter.service; then
        deb-systemd-helper enable greeter.service >/dev/null || true
    else
        deb-systemd-helper update-state greeter.service >/dev/null || true
    fi
    systemctl --system daemon-reload >/dev/null || true
    if [ -n "$2" ]; then action=restart; else action=start; fi
    deb-systemd-invoke $action greeter.service >/dev/null || true
fi
SCRIPT
    cat > "$tree/DEBIAN/prerm" <<'SCRIPT'
#!/bin/sh
set -e
[ "$1" != remove ] || deb-systemd-invoke stop greeter.service >/dev/null || true
SCRIPT
    cat > "$tree/DEBIAN/postrm" <<'SCRIPT'
#!/bin/sh
set -e
[ "$1" != remove ] || systemctl --system daemon-reload >/dev/null || true
[ "$1" != purge ] || deb-systemd-helper purge greeter.service >/dev/null || true
SCRIPT
    sed -i "s/@VERSION@/$version/" "$tree/DEBIAN/postinst"
    chmod 755 "$tree"/DEBIAN/p* "$tree/usr/sbin/greeter"
    local deb=greeter_${version}_all.deb
    dpkg-deb --build --root-owner-group -Zgzip "$tree" "$folder/$deb" >/dev/null
    rm -rf "$tree"
    {
        dpkg-deb --field "$folder/$deb"
        echo "Filename: ./$deb"
        echo "Size: $(stat -c %s "$folder/$deb")"
        echo "SHA256: $(sha256sum < "$folder/$deb" | cut -d ' ' -f 1)"
        echo
    } >> "$folder/Packages"
}

if ! command -v dpkg-deb >/dev/null || [ ! -d /var/lib/dpkg ]; then
    echo "skipped: packages, for this is no machine with apt and dpkg"
    return 0
fi

step "a repository beside the model, and what is on the hosts before"
list_before
repository=$(mktemp -d)
make_greeter 1.0 "$repository"
to_site() { tar -C "$1" -c "${@:2}" | on h1 sh -c "mkdir -p $site/repository && tar -C $site/repository --no-same-owner -x"; }
to_site "$repository" .
put h1 $site/serve.pl <<'PROGRAM'
#!/usr/bin/perl
# serve.pl PORT FOLDER: gives out the files of a folder by HTTP, to whoever asks.
use strict;
use warnings;
use IO::Socket::INET;
my ($port, $folder) = @ARGV;
my $socket = IO::Socket::INET->new(LocalPort => $port, Listen => 64, ReuseAddr => 1) or die "port $port: $!\n";
$SIG{CHLD} = 'IGNORE';
while (1) {
    my $client = $socket->accept or next;
    next if fork;
    my $request = <$client> // '';
    while (defined(my $line = <$client>)) { last if $line =~ /^\r?$/ }
    my ($path) = $request =~ m{^GET /+([\w.+~/-]+) };
    my $file;
    if (defined $path && $path !~ m{\.\.} && -f "$folder/$path" && open $file, '<:raw', "$folder/$path") {
        print $client "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: ", -s $file, "\r\n\r\n";
        local $/ = \65536;
        print $client $_ while <$file>;
    } else {
        print $client "HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    }
    close $client;
    exit;
}
PROGRAM
put h1 $site/greeter.conf <<'TEMPLATE'
# {{ host.name }}
greeting="{{ greeting }}"
TEMPLATE
put h1 $site/greeter.yaml <<'MODEL'
variables:
  all: {version: "1.0", greeting: good morning}
  host: {h2: {}}

services:
  repository:
    ready: [files, answers]
    cobs:
      program:
        kind: file-tree
        content: {files: {/usr/local/lib/repository/serve.pl: {from: ./serve.pl, mode: "0755"}}}
      files:
        kind: file-tree
        content: {files: {/srv/repository: {from: ./repository, whole: true}}}
      server:
        kind: service
        after: [files]
        restarts_on: [program]
        content:
          unit: repository.service
          enabled: true
          unit_file: |
            [Service]
            # Slow, so that whoever does not wait for it comes too early.
            ExecStartPre=/bin/sleep 1
            ExecStart=/usr/bin/perl /usr/local/lib/repository/serve.pl 8080 /srv/repository
            [Install]
            WantedBy=multi-user.target
      answers:
        kind: http-check
        requires: [server]
        content: {url: "http://{{ host.ip }}:8080/Packages"}
  greeter:
    cobs:
      package:
        kind: package
        # A changed repository is there, and answers, before anything is installed from it.
        after: [repository]
        content:
          name: greeter
          version: "{{ version }}"
          repository: "http://{% for h in on('repository') %}{{ h.ip }}{% endfor %}:8080"
          trusted: true
          purge: true
      config:
        kind: file-tree
        requires: [package]
        content: {files: {/etc/greeter/greeter.conf: {template: greeter.conf, mode: "0640"}}}
      server:
        kind: service
        requires: [package]
        reloads_on: [config]
        # Masked while it is down, so that the package does not start it in the midst of an upgrade.
        content: {unit: greeter.service, enabled: true, mask: true, on_change: reload, ready: test -s /run/greeter/said}

clusters:
  greeting:
    services:
      repository: [h1]
      greeter: [h2, h3]
MODEL

# Another value for all, or for one host alone, in the next generation.
for_all() { on h1 sed -i "s/^  all: {.*/  all: {$1}/" $site/greeter.yaml; }
for_host() { on h1 sed -i "s/^  host: {.*/  host: {$1: {$2}}/" $site/greeter.yaml; }
# What has moved since the last switch: `HOST/SERVICE/COB FROM→TO`, in alphabetical order.
moved() {
    ctl history --since-generation $cluster_generation | awk '$5 == "start" { print $4, $6 "→" $8 }' | sort
}
has_moved() { # HOSTS: the same lines, from standard input, and on these hosts nothing else
    local wanted found
    wanted=$(sort) found=$(moved | grep "^$1/")
    [ "$wanted" = "$found" ] || { echo "has moved:"; echo "$found"; return 1; } >&2
}
nothing_failed() { fails says FAILED ctl history --since-generation $cluster_generation; }
greets() { [ "$(on "$1" cut -d ' ' -f 1,3- /run/greeter/said)" = "$2" ]; }
main_of() { on "$1" systemctl show --value --property MainPID "$2"; }
version_on() { on "$1" dpkg-query -W -f '${Version} ${db:Status-Status}' greeter; }

step "it comes to h2 and h3 once h1 gives it out, is configured and runs"
switch_cluster
for host in h2 h3; do
    [ "$(version_on $host)" = "1.0 installed" ]
    greets $host "1.0 good morning"
    [ "$(on $host systemctl is-active greeter)" = active ]
    [ "$(on $host systemctl is-enabled greeter)" = enabled ]
    [ "$(on $host stat -c %a /etc/greeter/greeter.conf)" = 640 ]
done
# Nobody came too early.
nothing_failed
on h1 systemctl is-active repository >/dev/null

step "another word for h2: one file is written there, and one service reloaded"
greeter2=$(main_of h2 greeter) greeter3=$(main_of h3 greeter)
for_host h2 'greeting: good evening'
switch_cluster
soon greets h2 "1.0 good evening"
greets h3 "1.0 good morning"
[ "$(main_of h2 greeter) $(main_of h3 greeter)" = "$greeter2 $greeter3" ]
has_moved 'h[123]' <<'MOVES'
h2/greeter/config outdated→present
h2/greeter/server outdated→up
MOVES

step "another version: it is in the repository first; h3 loses its power in the midst of it"
repository1=$(main_of h1 repository)
make_greeter 1.1 "$repository"
to_site "$repository" .
for_all 'version: "1.1", greeting: good morning'
# The package's own script takes its time on h3.
on h3 touch /var/lib/greeter-takes-long
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon on h3 test -e /run/greeter-is-configured
bed power-off h3
bed power-on h3
soon ctl status
for host in h2 h3; do
    [ "$(version_on $host)" = "1.1 installed" ]
    soon greets $host "1.1 good $([ $host = h2 ] && echo evening || echo morning)"
    [ "$(on $host systemctl is-active greeter)" = active ]
    [ "$(on $host dpkg --audit)" = "" ]
done
on h3 rm /var/lib/greeter-takes-long
[ "$(main_of h1 repository)" = "$repository1" ]
has_moved 'h[12]' <<'MOVES'
h1/repository/files outdated→present
h2/greeter/server up→down
h2/greeter/config present→absent
h2/greeter/package outdated→present
h2/greeter/config absent→present
h2/greeter/server down→up
MOVES

step "another version, whose own script fails on h3: it says so, and goes back to the one before"
make_greeter 1.2 "$repository"
to_site "$repository" .
on h3 sh -c 'echo 1.2 > /var/lib/greeter-fails'
for_all 'version: "1.2", greeting: good morning'
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon says "no voice for 1.2" ctl history --since-generation $cluster_generation --cob h3/greeter/package
for_all 'version: "1.1", greeting: good morning'
switch_cluster
for host in h2 h3; do
    [ "$(version_on $host)" = "1.1 installed" ]
    [ "$(on $host systemctl is-active greeter)" = active ]
done

step "it fails again, and all of it goes; the hosts are as before"
for_all 'version: "1.2", greeting: good morning'
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon says "no voice for 1.2" ctl history --since-generation $cluster_generation --cob h3/greeter/package
on h1 rm -r $site/greeter.yaml $site/greeter.conf $site/serve.pl $site/repository
switch_cluster
on h3 rm /var/lib/greeter-fails
soon is_as_before
rm -rf "$repository"

step "packages that others need, that exclude each other, that are on hold, and data that is kept"
make_small() { # NAME, MORE of its control file, and what its script does when it is purged
    local tree file
    tree=$(mktemp -d) file=$1_1_all.deb
    mkdir -p "$tree/DEBIAN" "$tree/usr/share/$1"
    printf 'Package: %s\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\n%bDescription: a test\n' \
        "$1" "$2" > "$tree/DEBIAN/control"
    echo 1 > "$tree/usr/share/$1/version"
    if [ -n "${3:-}" ]; then
        printf '#!/bin/sh\nset -e\n[ "$1" != purge ] || %s\n' "$3" > "$tree/DEBIAN/postrm"
        chmod 755 "$tree/DEBIAN/postrm"
    fi
    dpkg-deb --build --root-owner-group -Zgzip "$tree" "$small/$file" >/dev/null
    {
        dpkg-deb --field "$small/$file"
        printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "$file" "$(stat -c %s "$small/$file")" \
            "$(sha256sum < "$small/$file" | cut -d ' ' -f 1)"
    } >> "$small/Packages"
    rm -rf "$tree"
}
small=$(mktemp -d)
make_small cclib ''
make_small cctool 'Depends: cclib\n'
make_small ccmta-a 'Provides: ccmta\nConflicts: ccmta\n'
make_small ccmta-b 'Provides: ccmta\nConflicts: ccmta\n'
make_small ccheld ''
make_small ccdata '' 'rm -rf /var/lib/ccdata'
tar -C "$small" -c . | on h2 sh -c 'mkdir -p /srv/small && tar -C /srv/small --no-same-owner -x'
rm -rf "$small"
package() { # NAME MORE: a change object of h2 of that name
    echo "  h2/$1: {kind: package, content: {name: $1, repository: /srv/small, trusted: true, purge: true${2:-}}}"
}
switch_packages() { # from standard input
    { echo 'cobs:'; cat; } | put h1 $site/small.yaml
    switch_cluster
}
is_installed() { [ "$(on h2 dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }
nothing() { switch_packages <<< '  h2/nothing: {kind: noop}'; }

# What somebody else has installed stays, with what it needs.
switch_packages < <(package cclib)
on h2 dpkg -i /srv/small/cctool_1_all.deb >/dev/null
nothing
is_installed cctool
is_installed cclib
on h2 dpkg -P cctool cclib >/dev/null
# What another change object has installed stays as long as that one, and goes with it.
switch_packages < <(package cclib; package cctool)
switch_packages < <(package cctool)
is_installed cctool
is_installed cclib
nothing
fails is_installed cctool
fails is_installed cclib
# Of two that exclude each other the second one fails, and says why.
{ echo 'cobs:'; package ccmta-a; package ccmta-b; } | put h1 $site/small.yaml
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon says "the package manager would remove ccmta-" ctl history --since-generation $cluster_generation
nothing
# What was there before stays, on hold.
on h2 sh -c 'dpkg -i /srv/small/ccheld_1_all.deb && apt-mark hold ccheld' >/dev/null
switch_packages < <(package ccheld)
nothing
says ccheld on h2 apt-mark showhold
on h2 dpkg -P ccheld >/dev/null
# A purge spares what the model keeps.
switch_packages < <(
    package ccdata
    echo '  h2/data: {kind: file-tree, on_remove: keep, content: {files: {/var/lib/ccdata/main: {folder: true}}}}'
)
on h2 touch /var/lib/ccdata/main/kept /var/lib/ccdata/else
nothing
on h2 test -e /var/lib/ccdata/main/kept
fails on h2 test -e /var/lib/ccdata/else
fails on h2 dpkg-query -W ccdata
on h2 rm -r /var/lib/ccdata /srv/small
on h1 rm $site/small.yaml
switch_cluster
soon is_as_before

# Sourced by run.sh: settings of h2 in odd surroundings: mounts below links, in each other, and from a server that is
# away; parameters of an interface that goes; files that cron skips; what others have written, in whatever letters.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

settings_of() { # of h2: what is set, byte for byte
    on h2 sh -c 'md5sum /etc/passwd /etc/group /etc/hosts; cat /etc/fstab; find /etc/cron.d /etc/sysctl.d /srv/set -printf "%p %y %m %u %l\n" 2>/dev/null | sort
        grep -c -e /srv/set -e /run/set /proc/self/mountinfo || true'
}
are_as_before() { [ "$(settings_of)" = "$settings_before" ] || { diff <(echo "$settings_before") <(settings_of) >&2; return 1; }; }
set_to() { # the model's change objects, from standard input
    { echo 'cobs:'; cat; } | put h1 $site/settings.yaml
}
# As switch_cluster, but for what a model is warned of.
switch_settings() {
    set_to
    switch_cluster
}
gone() { switch_settings <<< '  h2/nothing: {kind: noop}'; }
mounts_on() { on h2 grep -c " $1 " /proc/self/mountinfo || true; }
is_mounted_once() { [ "$(mounts_on "$1")" = 1 ]; }

step "settings below a link, and beside bytes that are no text"
on h2 sh -c 'printf "mueller:x:4711:100:J\374rgen M\374ller:/srv/m:/bin/sh\n" >> /etc/passwd; printf "# b\374ro\n" >> /etc/hosts; touch /etc/fstab; mkdir -p /etc/cron.d'
settings_before=$(settings_of)
switch_settings <<'MODEL'
  h2/mount: {kind: mount, content: {path: /var/run/set/here, source: tmpfs, type: tmpfs, options: [size=1m]}}
  h2/user: {kind: user, content: {name: tess}}
  h2/job: {kind: cron, content: {schedule: "30 4 * * *", command: /bin/true, name: job}}
  h2/name: {kind: host-entry, content: {address: 10.9.9.9, names: [db]}}
MODEL
is_mounted_once /run/set/here

step "a file that cron would skip is made anew"
on h2 chmod g+w /etc/cron.d/job
ctl check >/dev/null 2>&1 || true
is_job() { [ "$(on h2 stat -c '%F %a %U' /etc/cron.d/job)" = "regular file 644 root" ]; }
soon is_job
on h2 sh -c 'mv /etc/cron.d/job /srv/job; ln -s /srv/job /etc/cron.d/job'
ctl check >/dev/null 2>&1 || true
soon is_job
on h2 rm /srv/job
soon ctl status
gone
are_as_before

step "a parameter whose interface has gone leaves"
# Of the kernel's parameters a container may write none; those of its own network are nobody else's.
on h2 sh -c 'mount --bind /proc/sys/net/ipv4 /proc/sys/net/ipv4 && mount -o remount,bind,rw /proc/sys/net/ipv4'
on h2 ip link add tt0 type veth peer name tt1
switch_settings <<'MODEL'
  h2/forward: {kind: sysctl, content: {key: net.ipv4.conf.tt0.forwarding, value: 1}}
MODEL
[ "$(on h2 cat /proc/sys/net/ipv4/conf/tt0/forwarding)" = 1 ]
on h2 ip link del tt0
ctl check >/dev/null 2>&1 || true
gone
are_as_before

step "a value in the kernel's words is as wanted, and a later file that says otherwise is named"
switch_settings <<'MODEL'
  h2/ports: {kind: sysctl, content: {key: net.ipv4.ip_local_reserved_ports, value: "8080,8081,8082"}}
MODEL
[ "$(on h2 cat /proc/sys/net/ipv4/ip_local_reserved_ports)" = 8080-8082 ]
on h2 sh -c 'echo net.ipv4.ip_local_reserved_ports=1 > /etc/sysctl.d/99-late.conf'
ctl check >/dev/null 2>&1 || true
soon says "/etc/sysctl.d/99-late.conf is read after" ctl history --cob h2/ports
on h2 rm /etc/sysctl.d/99-late.conf
gone
are_as_before

step "a table of cron with an empty variable is one that cron reads"
switch_settings <<'MODEL'
  h2/job: {kind: cron, content: {name: job, schedule: "* * * * *", command: "true", env: {MAILTO: "", B: "'a' b"}}}
MODEL
says 'MAILTO=""' on h2 cat /etc/cron.d/job
if on h2 sh -c 'crontab -h 2>&1 | grep -q -- "-n"'; then
    # A table of a user has no user in its lines.
    on h2 sh -c 'sed "s/ root / /" /etc/cron.d/job > /run/table; crontab -n /run/table; rm /run/table'
fi
gone
are_as_before

step "lines that others append to /etc/hosts meanwhile stay"
on h2 sh -c 'for k in $(seq 400); do echo "10.9.$((k / 250)).$((k % 250)) other$k" >> /etc/hosts; sleep 0.01; done' &
writer=$!
for _ in 1 2; do
    switch_settings < <(for k in $(seq 20); do
        echo "  h2/e$k: {kind: host-entry, content: {address: 10.1.0.$k, names: [ours$k]}}"
    done)
    gone
done
wait $writer
[ "$(on h2 grep -c ' other[0-9]' /etc/hosts)" = 400 ]
fails on h2 grep -q ' ours[0-9]' /etc/hosts
on h2 sed -i '/ other[0-9]/d' /etc/hosts
are_as_before

step "systemd reads the table of mounts again, and options that a remount ignores are in effect"
switch_settings <<'MODEL'
  h2/scratch: {kind: mount, content: {path: /srv/set, source: tmpfs, type: tmpfs, options: [size=1m, ro]}}
MODEL
on h2 systemctl daemon-reload
switch_settings <<'MODEL'
  h2/scratch: {kind: mount, content: {path: /srv/set, source: tmpfs, type: tmpfs, options: [size=2m, mode=0700, uid=1]}}
MODEL
[ "$(on h2 stat -c '%a %u' /srv/set)" = "700 1" ]
[ "$(on h2 systemctl show --value --property NeedDaemonReload srv-set.mount)" = no ]
on h2 systemctl restart srv-set.mount
[ "$(on h2 stat -c '%a %u' /srv/set)" = "700 1" ]
says "size=2048k" on h2 findmnt -n -o OPTIONS /srv/set
gone
fails on h2 systemctl start srv-set.mount
are_as_before

step "mounts in each other: one that is hidden is seen again, and both go"
set_to <<'MODEL'
  h2/a-data: {kind: mount, content: {path: /srv/set/data, source: tmpfs, type: tmpfs}}
  h2/nest: {kind: mount, content: {path: /srv/set, source: tmpfs, type: tmpfs}}
MODEL
says "h2/a-data mounts /srv/set/data in /srv/set, which h2/nest mounts" on h1 cobgen check $site
switch_settings <<'MODEL'
  h2/a-data: {kind: mount, content: {path: /srv/set/data, source: tmpfs, type: tmpfs}}
MODEL
on h2 mount -t tmpfs later /srv/set
ctl check >/dev/null 2>&1 || true
soon on h2 test -d /srv/set/data
soon ctl status
set_to <<< '  h2/nothing: {kind: noop}'
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon says "is hidden by a later mount on /srv/set" ctl history --cob h2/a-data
on h2 umount /srv/set
ctl retry h2/a-data >/dev/null 2>&1 || true
soon are_as_before
soon ctl status

step "a mount that hangs keeps nothing else from being set"
put h2 /sbin/mount.hang <<'PROGRAM'
#!/bin/sh
echo $$ > /run/hangs
exec sleep 600
PROGRAM
on h2 chmod 755 /sbin/mount.hang
set_to <<'MODEL'
  h2/a-away: {kind: mount, content: {path: /srv/set, source: "srv:/x", type: hang}}
  h2/user: {kind: user, content: {name: tess}}
  h2/mount: {kind: mount, content: {path: /run/set/here, source: tmpfs, type: tmpfs}}
MODEL
publish_cluster
ctl switch $cluster_generation >/dev/null 2>&1
soon on h2 test -e /run/hangs
soon on h2 getent passwd tess
soon is_mounted_once /run/set/here
# It still hangs: nobody has waited for it.
on h2 sh -c 'kill -0 $(cat /run/hangs)'
on h2 rm /sbin/mount.hang
on h2 sh -c 'kill $(cat /run/hangs); rm /run/hangs'
gone
are_as_before

step "what is observed counts by its effect"
on h2 sh -c 'mkdir -p /srv/set; printf "tmpfs\t/srv/set  tmpfs size=1m 0 0\n" > /etc/fstab; mount /srv/set
    echo net.ipv4.ip_forward=1 > /etc/sysctl.d/99-mine.conf; echo 1 > /proc/sys/net/ipv4/ip_forward; echo "10.9.9.9 db.example.org db" >> /etc/hosts'
observed=$(settings_of)
switch_settings <<'MODEL'
  h2/forward: {kind: sysctl, mode: observe, content: {key: net.ipv4.ip_forward, value: 1}}
  h2/mount: {kind: mount, mode: observe, content: {path: /srv/set, source: tmpfs, type: tmpfs, options: [size=1m]}}
  h2/name: {kind: host-entry, mode: observe, content: {address: 10.9.9.9, names: [db.example.org, db]}}
MODEL
fails says "observed only" ctl status
gone
[ "$(settings_of)" = "$observed" ]
on h2 sh -c 'umount /srv/set; rmdir /srv/set; : > /etc/fstab; rm /etc/sysctl.d/99-mine.conf; echo 0 > /proc/sys/net/ipv4/ip_forward
    umount /proc/sys/net/ipv4; sed -i /^mueller:/d /etc/passwd; sed -i -e /10.9.9.9/d -e "/^# b/d" /etc/hosts'
on h1 rm $site/settings.yaml
switch_cluster

# Sourced by run.sh: what a daemon and systemd have to do with each other. Each host is a cluster of its
# own here, on its loopback address.

for host in h1 h2 h3; do
    put $host /srv/alone/model.yaml <<MODEL
security: loopback-only
hosts:
  $host: {address: "tcp://127.0.0.1:7077"}
kinds:
  file:
    states: [down, up]
    preferred: up
    pre_remove: down
    check: {run: "test -e /srv/alone/made && echo up || echo down"}
    transitions:
      - {from: down, to: up, run: "test -e /srv/alone/go && touch /srv/alone/made", retries: 100, retry_delay: 200ms}
      - {from: up, to: down, run: "rm /srv/alone/made"}
cobs:
  $host/kept:
    kind: service
    content: {start: "exec sleep 1000000"}
  $host/file: {kind: file, requires: [kept]}
MODEL
    put $host /etc/cob/cobd.toml <<CONFIG
host = "$host"
depot = "/srv/alone/depot"
CONFIG
    put $host /etc/systemd/system/cobd.service.d/quick.conf <<UNIT
[Service]
WatchdogSec=3
UNIT
    on $host systemctl daemon-reload
    on $host cobgen generate /srv/alone --depot /srv/alone/depot >/dev/null
done

step "the unit starts when the daemon says that it is up, and says what it is at"
for host in h1 h2 h3; do
    on $host systemctl enable --now cobd 2>/dev/null
    is_unit $host ActiveState active
    is_unit $host Type notify
    on $host cobctl switch 1 >/dev/null
    soon says "generation 1, converging" unit $host StatusText
done

step "it is closed to others"
[ "$(on h1 stat -c '%a %U' /var/lib/cob /run/cob/cobd.sock /run/cob | xargs)" = "700 root 600 root 700 root" ]
main=$(unit h1 MainPID)
on h1 grep -q '^Umask:.*0077$' "/proc/$main/status"
on h1 grep -Eq '^Max core file size +0 +0 ' "/proc/$main/limits"

step "killed, it is started again and finds its service as it was"
kept=$(on h1 pgrep -x sleep)
on h1 kill -KILL "$main"
soon is_unit h1 NRestarts 1
soon is_unit h1 ActiveState active
[ "$(unit h1 MainPID)" != "$main" ]
[ "$(on h1 pgrep -x sleep)" = "$kept" ]
on h1 touch /srv/alone/go
soon on h1 cobctl status
soon says "generation 1, converged" unit h1 StatusText

step "a daemon that hangs is noticed, ended and started again"
main=$(unit h2 MainPID)
on h2 kill -STOP "$main"
soon is_unit h2 NRestarts 1
on h2 journalctl --unit cobd | grep >/dev/null 'Watchdog timeout'
soon is_unit h2 ActiveState active
on h2 touch /srv/alone/go
soon on h2 cobctl status

step "stopped and begun again as an administrator does it, what it keeps goes on"
kept=$(on h2 pgrep -x sleep)
on h2 systemctl stop cobd
is_unit h2 Result success
[ "$(on h2 pgrep -x sleep)" = "$kept" ]
on h2 systemctl start cobd
soon on h2 cobctl status
[ "$(on h2 pgrep -x sleep)" = "$kept" ]

step "without power and back, it comes up by itself and brings its host where it should be"
on h1 rm /srv/alone/made
bed power-off h1
bed power-on h1
soon is_unit h1 ActiveState active
soon on h1 pgrep -x sleep
soon on h1 test -e /srv/alone/made
soon on h1 cobctl status
[ "$(on h1 cobctl history | grep -c 'h1/kept.*down.*up')" -ge 2 ]

step "a state folder that others may write is refused, once and for all to see"
on h3 systemctl stop cobd
on h3 chmod 0777 /var/lib/cob
# systemd itself would close it again.
put h3 /etc/systemd/system/cobd.service.d/open.conf <<UNIT
[Service]
StateDirectory=
UNIT
on h3 systemctl daemon-reload
fails on h3 systemctl start cobd
on h3 journalctl --unit cobd | grep >/dev/null 'state folder /var/lib/cob: other users may write into it (mode 777); make it 0700'
on h3 systemctl stop cobd
on h3 chmod 0700 /var/lib/cob
on h3 rm /etc/systemd/system/cobd.service.d/open.conf
on h3 systemctl daemon-reload
on h3 systemctl reset-failed cobd
on h3 systemctl start cobd

step "a wrong configuration is not tried again and again"
on h3 systemctl stop cobd
on h3 sh -c 'echo "hots = 1" >> /etc/cob/cobd.toml'
fails on h3 systemctl start cobd
is_unit h3 ExecMainStatus 2
is_unit h3 NRestarts 0

step "nothing of it leaves the host: a neighbour finds no open port"
fails on h2 timeout 2 bash -c 'exec 3<>/dev/tcp/h1/7077'
on h1 timeout 2 bash -c 'exec 3<>/dev/tcp/127.0.0.1/7077'

step "hosts can be cut off and partitioned"
bed cut h2
fails on h1 ping -c 1 -W 1 h2
bed heal h2
soon on h1 ping -c 1 -W 1 h2
bed partition 'h1 h2|h3'
fails on h3 ping -c 1 -W 1 h1
on h1 ping -c 1 -W 1 h2 >/dev/null
bed heal
soon on h3 ping -c 1 -W 1 h1

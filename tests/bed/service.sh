# Sourced by run.sh: units of systemd as change objects, on h1 alone: taken over, watched, changed, reloaded,
# masked, and given back as they were found.

step "a daemon of its own on h1, and a unit that somebody has installed and started"
on h1 systemctl stop cobd 2>/dev/null || true
on h1 sh -c 'rm -rf /var/lib/cob/* /srv/units; mkdir -p /srv/units'
put h1 /etc/cob/cobd.toml <<CONFIG
host = "h1"
depot = "/srv/units/depot"
CONFIG
put h1 /usr/lib/systemd/system/demo.service <<'UNIT'
[Unit]
Description=Something that runs
[Service]
Environment=COLOUR=none
ExecStart=/bin/sh -c 'echo demo is up; exec sleep infinity'
ExecReload=/bin/sh -c 'echo >> /run/demo-reloads'
Restart=on-failure
RestartSec=30s
[Install]
WantedBy=multi-user.target
UNIT
on h1 systemctl daemon-reload
on h1 systemctl start demo
on h1 systemctl enable cobd 2>/dev/null

demo() { on h1 systemctl show --value --property "$1" demo; }
is_demo() { [ "$(demo "$1")" = "$2" ]; }
has_colour() { on h1 sh -c "tr '\\0' '\\n' < /proc/\$(systemctl show --value --property MainPID demo)/environ" | grep -qx "COLOUR=$1"; }
etc() { on h1 sh -c 'cd /etc/systemd && find . -printf "%p %y %m %u %g %l\n" | sort && find . -type f -print0 | sort -z | xargs -0 md5sum'; }
# Status ends with an error as long as not everything is where it should be.
status_says() { grep -qF -- "$1" <<< "$(on h1 cobctl status 2>&1 || true)"; }
# The model of the next generation comes from standard input, below what is the same in all.
generation=0
generate() {
    {
        printf 'security: loopback-only\nhosts:\n  h1: {address: "tcp://127.0.0.1:7077"}\ncobs:\n'
        printf '  h1/kept: {kind: service, content: {start: "exec sleep 100000"}}\n'
        cat
    } | put h1 /srv/units/model.yaml
    on h1 cobgen generate /srv/units --depot /srv/units/depot >/dev/null
    generation=$((generation + 1))
}
switch() {
    generate
    on h1 cobctl switch "$generation" --wait 40s >/dev/null 2>&1 || on h1 cobctl status
}
before=$(etc)
generate <<< ""
on h1 systemctl restart cobd
soon is_unit h1 ActiveState active
on h1 cobctl switch 1 --wait 40s >/dev/null

step "it is taken over: drop-in, enablement, restart"
first=$(demo MainPID)
switch <<'MODEL'
  h1/demo:
    kind: service
    content: {unit: demo, enabled: true, drop_ins: {10-cob.conf: "[Service]\nEnvironment=COLOUR=red\n"}}
MODEL
has_colour red
is_demo UnitFileState enabled
[ "$(demo MainPID)" != "$first" ]

step "killed, or stopped by somebody, it runs again at once"
for deed in "kill -KILL $(demo MainPID)" "systemctl stop demo"; do
    # A change while a transition runs is found by the next check.
    soon on h1 cobctl status h1/demo
    main=$(demo MainPID) began=$(date +%s%N)
    # shellcheck disable=SC2086 # a command
    on h1 $deed
    soon eval 'is_demo ActiveState active && [ "$(demo MainPID)" != "'"$main"'" ]'
    took=$((($(date +%s%N) - began) / 1000000))
    echo "       after $took ms: ${deed%% -*}"
    # At once, and not by the check after 10 s.
    [ "$took" -lt 8000 ]
done

step "what it prints is shown, and what comes"
soon says "demo is up" on h1 cobctl logs h1/demo
# It has only just been started again: what it prints then is not in the journal yet.
sleep 1
on h1 journalctl --sync
so_far=$(on h1 cobctl logs h1/demo | grep -c "demo is up")
on h1 sh -c 'timeout 6 cobctl logs h1/demo --follow > /run/demo-logs & sleep 1; systemctl restart demo; wait' || true
on h1 journalctl --sync
by_now=$(on h1 cobctl logs h1/demo | grep -c "demo is up")
# It was started once, and by nobody else; all that came was followed, and nothing twice.
[ "$by_now" = $((so_far + 1)) ]
[ "$(on h1 grep -c "demo is up" /run/demo-logs)" = "$by_now" ]

step "what somebody changes is put right: a drop-in with a restart, enablement without"
soon on h1 cobctl status
main=$(demo MainPID)
on h1 systemctl disable demo 2>/dev/null
soon is_demo UnitFileState enabled
[ "$(demo MainPID)" = "$main" ]
on h1 sh -c 'echo "[Service]
Environment=COLOUR=blue" > /etc/systemd/system/demo.service.d/10-cob.conf'
soon eval '[ "$(demo MainPID)" != "'"$main"'" ] && has_colour red'
says "COLOUR=blue" on h1 cobctl history

step "what it rests on has changed: it is reloaded, and goes on"
for words in one two; do
    switch <<MODEL
  h1/conf:
    kind: script
    content:
      words: $words
      check: {run: 'if [ ! -e /srv/units/conf ]; then echo down; elif cmp -s /srv/units/conf "\$COB_CONTENT"; then echo up; else echo outdated; fi'}
      transitions:
        - {from: down, to: up, run: 'cp "\$COB_CONTENT" /srv/units/conf'}
        - {from: outdated, to: up, run: 'cp "\$COB_CONTENT" /srv/units/conf'}
        - {from: outdated, to: down, run: 'rm -f /srv/units/conf'}
        - {from: up, to: down, run: 'rm -f /srv/units/conf'}
  h1/demo:
    kind: service
    reloads_on: [conf]
    content: {unit: demo, enabled: true, on_change: reload, drop_ins: {10-cob.conf: "[Service]\nEnvironment=COLOUR=red\n"}}
MODEL
    [ "$words" = two ] || main=$(demo MainPID)
done
[ "$(demo MainPID)" = "$main" ]
on h1 test -e /run/demo-reloads

step "the daemon is killed in the midst of a start: systemd goes on, and so does the action"
generate <<'MODEL'
  h1/demo:
    kind: service
    content: {unit: demo, drop_ins: {10-cob.conf: "[Service]\nExecStartPre=/bin/sleep 2\nEnvironment=COLOUR=green\n"}}
MODEL
on h1 cobctl switch "$generation" >/dev/null
soon is_demo SubState start-pre
on h1 kill -KILL "$(unit h1 MainPID)"
soon on h1 cobctl status
has_colour green

step "a start that is cancelled stops the unit, and is tried again"
generate <<'MODEL'
  h1/demo:
    kind: service
    content: {unit: demo, drop_ins: {10-cob.conf: "[Service]\nExecStartPre=/bin/sleep 4\n"}}
MODEL
on h1 cobctl switch "$generation" >/dev/null
soon is_demo SubState start-pre
on h1 pkill -TERM -f __move-service
soon says "FAILED  cancelled" on h1 cobctl history
soon says "ExecStartPre= ended with signal 15 (SIGTERM)" on h1 cobctl history
soon on h1 cobctl status

step "one that can't run is failed, with its own last words, and is left stopped"
generate <<'MODEL'
  h1/demo:
    kind: service
    content:
      unit: demo
      drop_ins:
        10-cob.conf: |
          [Service]
          ExecStart=
          ExecStart=/bin/sh -c 'echo port 80 is taken; exit 4'
MODEL
on h1 cobctl switch "$generation" >/dev/null
soon status_says '`cobctl retry`'
status_says "exit status 4"
says "port 80 is taken" on h1 cobctl history
fails is_demo ActiveState active

step "one that is to be down is masked, and whoever masked it takes that away again"
masked='  h1/demo: {kind: service, preferred: down, content: {unit: demo, mask: true, enabled: false}}'
switch <<< "$masked"
is_demo LoadState masked
fails on h1 systemctl start demo
switch <<< '  h1/demo: {kind: service, content: {unit: demo}}'
is_demo ActiveState active
switch <<< "$masked"
is_demo LoadState masked

step "out of the model, it is as it was found: running, not enabled, without a drop-in"
switch <<< ""
soon is_demo ActiveState active
has_colour none
is_demo UnitFileState disabled
[ "$(etc)" = "$before" ] || { diff <(echo "$before") <(etc) >&2; false; }

step "a unit of the model's own comes and goes, with its drop-in and its mask"
switch <<'MODEL'
  h1/own:
    kind: service
    content:
      unit: own.service
      enabled: true
      unit_file: |
        [Service]
        Type=oneshot
        RemainAfterExit=yes
        ExecStart=/bin/touch /run/own
        [Install]
        WantedBy=multi-user.target
      drop_ins: {a.conf: "[Service]\nExecStart=/bin/touch /run/own-too\n"}
      ready: test -e /run/own-too
MODEL
on h1 systemctl is-active own >/dev/null
on h1 systemctl is-enabled own >/dev/null
main=$(demo MainPID)
switch <<< ""
says "could not be found" on h1 systemctl status own || says "not-found" on h1 systemctl show --property LoadState own
[ "$(etc)" = "$before" ] || { diff <(echo "$before") <(etc) >&2; false; }
[ "$(demo MainPID)" = "$main" ]

step "links of units are put back as they were found, whatever they are"
sleeps='[Service]\nExecStart=/bin/sleep infinity\n'
installs='[Install]\nWantedBy=multi-user.target\n'
# NAME TEXT [FOLDER]: a unit file of somebody else's.
other_unit() { printf '%b' "$2" | put h1 "${3:-/usr/lib/systemd/system}/$1.service"; }
run_links() { on h1 sh -c 'cd /run/systemd/system && find . -type l -printf "%p %l\n" | sort'; }
other_unit l-linked "$sleeps$installs" /opt
other_unit l-by-path "$sleeps$installs" /opt
for other in l-masked l-plain l-later l-wanted l-runtime l-run-mask; do
    other_unit "$other" "$sleeps$installs"
done
other_unit l-also "$sleeps${installs}Also=l-also.socket\n"
other_unit l-bare "$sleeps"
printf '[Socket]\nListenStream=/run/l-also.sock\n[Install]\nWantedBy=sockets.target\n' | put h1 /usr/lib/systemd/system/l-also.socket
on h1 systemctl daemon-reload
on h1 sh -c '
    systemctl link /opt/l-linked.service
    systemctl enable /opt/l-by-path.service
    systemctl enable l-masked l-also.socket
    systemctl mask l-masked
    systemctl add-wants graphical.target l-wanted.service
    systemctl add-wants multi-user.target l-bare.service
    systemctl enable --runtime l-runtime
    systemctl mask --runtime l-run-mask
    systemctl start l-linked l-by-path l-bare' 2>/dev/null
links=$(etc) at_run=$(run_links)
switch <<'MODEL'
  h1/linked: {kind: service, content: {unit: l-linked, enabled: true, drop_ins: {a.conf: "[Service]\nNice=1\n"}}}
  h1/by-path: {kind: service, content: {unit: l-by-path, enabled: false, drop_ins: {a.conf: "[Service]\nNice=1\n"}}}
  h1/masked: {kind: service, content: {unit: l-masked, mask: false}}
  h1/plain: {kind: service, content: {unit: l-plain, enabled: true}}
  h1/later: {kind: service, content: {unit: l-later, drop_ins: {a.conf: "[Service]\nNice=1\n"}}}
  h1/wanted: {kind: service, content: {unit: l-wanted, enabled: false}}
  h1/runtime: {kind: service, content: {unit: l-runtime, enabled: true}}
  h1/run-mask: {kind: service, content: {unit: l-run-mask, mask: false}}
  h1/also: {kind: service, content: {unit: l-also, enabled: true}}
  h1/bare: {kind: service, content: {unit: l-bare, enabled: false}}
MODEL
is_enabled() { [ "$(on h1 systemctl is-enabled "$1" 2>/dev/null)" = "$2" ]; }
on h1 systemctl is-active l-linked l-by-path l-bare >/dev/null
is_enabled l-linked enabled
is_enabled l-by-path linked
is_enabled l-runtime enabled
is_enabled l-wanted disabled
switch <<'MODEL'
  h1/plain: {kind: service, preferred: down, content: {unit: l-plain, mask: true}}
  h1/later: {kind: service, content: {unit: l-later, drop_ins: {a.conf: "[Service]\nNice=1\n"}}}
MODEL
on h1 systemctl enable l-later 2>/dev/null
switch <<< ""
soon on h1 systemctl is-active l-linked l-by-path l-bare
is_enabled l-later enabled
on h1 systemctl disable l-later 2>/dev/null
[ "$(etc)" = "$links" ] || { diff <(echo "$links") <(etc) >&2; false; }
[ "$(run_links)" = "$at_run" ] || { diff <(echo "$at_run") <(run_links) >&2; false; }
on h1 sh -c '
    systemctl unmask l-masked
    systemctl unmask --runtime l-run-mask
    systemctl stop l-bare
    rm /etc/systemd/system/*.wants/l-bare.service /etc/systemd/system/*.wants/l-wanted.service
    systemctl disable --runtime l-runtime
    systemctl disable --now l-linked l-by-path l-masked l-also.socket
    rm /etc/systemd/system/*.wants/l-* /etc/systemd/system/l-*' >/dev/null 2>&1 || true
on h1 systemctl daemon-reload
before=$(etc)

step "a unit file and a mask that are taken out of the content go"
on h1 systemctl stop demo
switch <<'MODEL'
  h1/demo: {kind: service, content: {unit: demo, unit_file: "[Service]\nExecStart=/bin/sleep infinity\n"}}
MODEL
is_demo FragmentPath /etc/systemd/system/demo.service
switch <<< '  h1/demo: {kind: service, content: {unit: demo}}'
is_demo ActiveState active
case $(demo FragmentPath) in */lib/systemd/system/demo.service) ;; *) false ;; esac
switch <<< '  h1/demo: {kind: service, preferred: down, content: {unit: demo, mask: true}}'
is_demo LoadState masked
switch <<< '  h1/demo: {kind: service, preferred: down, content: {unit: demo}}'
is_demo LoadState loaded
is_demo ActiveState inactive
switch <<< ""
on h1 systemctl start demo
[ "$(etc)" = "$before" ] || { diff <(echo "$before") <(etc) >&2; false; }

step "a unit that is named by an alias is the one that it leads to"
other_unit l-main "$sleeps${installs}Alias=l-alias.service\n"
on h1 sh -c 'systemctl daemon-reload; systemctl enable --now l-main' 2>/dev/null
links=$(etc)
switch <<< '  h1/alias: {kind: service, content: {unit: l-alias, enabled: false, drop_ins: {a.conf: "[Service]\nNice=1\n"}}}'
on h1 cobctl status >/dev/null
is_enabled l-main disabled
[ "$(on h1 systemctl show --value --property Nice l-main)" = 1 ]
switch <<< ""
soon on h1 systemctl is-active l-alias
[ "$(etc)" = "$links" ] || { diff <(echo "$links") <(etc) >&2; false; }
on h1 systemctl disable --now l-main 2>/dev/null

step "what a generator has written anew is no reason for a restart"
put h1 /etc/init.d/l-script <<'SCRIPT'
#!/bin/sh
### BEGIN INIT INFO
# Provides: l-script
# Default-Start: 2 3 4 5
# Default-Stop: 0 1 6
### END INIT INFO
case $1 in
start) setsid sleep 77777 > /dev/null 2>&1 < /dev/null & ;;
stop) pkill -f 'sleep 77777' ;;
esac
SCRIPT
on h1 sh -c 'chmod 755 /etc/init.d/l-script; systemctl daemon-reload; systemctl start l-script; sleep 1; systemctl daemon-reload'
main=$(on h1 pgrep -f 'sleep 77777')
switch <<< '  h1/script: {kind: service, content: {unit: l-script}}'
on h1 systemctl daemon-reload
on h1 cobctl check >/dev/null 2>&1 || true
soon on h1 cobctl status
[ "$(on h1 pgrep -f 'sleep 77777')" = "$main" ]
switch <<< ""
on h1 sh -c 'systemctl stop l-script; rm /etc/init.d/l-script; systemctl daemon-reload'

step "a change object that gets another name does not forget that its unit ran"
content='{unit: demo, drop_ins: {a.conf: "[Service]\nNice=1\n"}}'
for _ in 1 2 3 4; do
    switch <<< "  h1/old: {kind: service, content: $content}"
    switch <<< "  h1/new: {kind: service, content: $content}"
    switch <<< ""
    soon is_demo ActiveState active
done

step "a section [Install] that changes enables the unit as it says"
for target in multi-user graphical; do
    switch <<MODEL
  h1/install: {kind: service, content: {unit: l-install, enabled: true, unit_file: "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=$target.target\n"}}
MODEL
    [ "$(on h1 sh -c 'cd /etc/systemd/system && echo *.wants/l-install.service')" = "$target.target.wants/l-install.service" ]
done
switch <<< ""

step "what can't be put back holds the leave up, and says why"
on h1 systemctl enable --now l-plain 2>/dev/null
links=$(etc)
switch <<< '  h1/plain: {kind: service, content: {unit: l-plain, enabled: false}}'
on h1 mkdir -p /etc/systemd/system/multi-user.target.wants/l-plain.service
generate <<< ""
on h1 cobctl switch "$generation" >/dev/null
soon status_says '`cobctl retry`'
status_says "restoring the original state"
fails on h1 systemctl is-active l-plain
on h1 rmdir /etc/systemd/system/multi-user.target.wants/l-plain.service
on h1 cobctl retry h1/plain >/dev/null
soon on h1 systemctl is-active l-plain
soon on h1 cobctl status
[ "$(etc)" = "$links" ] || { diff <(echo "$links") <(etc) >&2; false; }
on h1 systemctl disable --now l-plain 2>/dev/null

step "a crash loop exhausts its attempts, though something else answers for it"
generate <<'MODEL'
  h1/loop:
    kind: service
    content:
      unit: l-loop
      settle: 2s
      ready: "true"
      unit_file: |
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c 'echo the port is taken; sleep 0.3; kill -SEGV $$$$'
        Restart=always
        RestartSec=0
MODEL
on h1 cobctl switch "$generation" >/dev/null
soon status_says '`cobctl retry`'
says "signal 11 (SIGSEGV)" on h1 cobctl history
says "the port is taken" on h1 cobctl history
fails on h1 systemctl is-active l-loop
switch <<< ""

step "a oneshot that ends is refused before it is started"
on h1 rm -f /run/l-once
generate <<'MODEL'
  h1/once:
    kind: service
    content: {unit: l-once, unit_file: "[Service]\nType=oneshot\nExecStart=/bin/touch /run/l-once\n"}
MODEL
on h1 cobctl switch "$generation" >/dev/null
soon status_says '`cobctl retry`'
status_says "RemainAfterExit=yes"
fails on h1 test -e /run/l-once
switch <<< ""

step "a program that can't be executed is told by its name"
generate <<'MODEL'
  h1/missing:
    kind: service
    content: {unit: l-missing, unit_file: "[Service]\nExecStart=/no/such/program\n"}
MODEL
on h1 cobctl switch "$generation" >/dev/null
soon status_says "203/EXEC"
switch <<< ""

step "a timer and its job: what runs is no failure, and a changed job is read"
for word in one two; do
    switch <<MODEL
  h1/job:
    kind: service
    preferred: down
    content: {unit: l-job, unit_file: "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo $word > /run/l-job; sleep 8'\n"}
  h1/timer:
    kind: service
    content: {unit: l-job.timer, enabled: true, unit_file: "[Timer]\nOnActiveSec=1s\nAccuracySec=100ms\n[Install]\nWantedBy=timers.target\n"}
MODEL
    [ "$word" = two ] || soon eval '[ "$(on h1 systemctl show --value --property ActiveState l-job)" = activating ]'
    on h1 cobctl check >/dev/null 2>&1 || true
    on h1 cobctl status >/dev/null
done
[ "$(on h1 systemctl show --value --property NeedDaemonReload l-job)" = no ]
soon eval '[ "$(on h1 systemctl show --value --property ActiveState l-job)" = inactive ]'
on h1 systemctl start l-job
[ "$(on h1 cat /run/l-job)" = two ]
switch <<< ""

step "of a timer also a job that a file tree has written is read"
for word in one two; do
    switch <<MODEL
  h1/job:
    kind: file-tree
    content: {files: {/etc/systemd/system/l-late.service: {content: "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'echo $word > /run/l-late'\n"}}}
  h1/timer:
    kind: service
    requires: [job]
    content: {unit: l-late.timer, unit_file: "[Timer]\nOnCalendar=03:00\n"}
MODEL
done
[ "$(on h1 systemctl show --value --property NeedDaemonReload l-late)" = no ]
on h1 systemctl start l-late
[ "$(on h1 cat /run/l-late)" = two ]
switch <<< ""

step "a service that a socket has started takes a new content, and ends when it leaves"
for word in one two; do
    switch <<MODEL
  h1/echo:
    kind: service
    preferred: down
    content: {unit: l-echo, unit_file: "[Service]\nExecStart=/bin/sleep infinity\nEnvironment=WORD=$word\n"}
  h1/socket:
    kind: service
    transitions: [{from: down, to: up, needs: [h1/echo@down]}]
    content: {unit: l-echo.socket, enabled: true, unit_file: "[Socket]\nListenStream=127.0.0.1:7311\n[Install]\nWantedBy=sockets.target\n"}
MODEL
    on h1 bash -c 'exec 3<>/dev/tcp/127.0.0.1/7311'
    soon on h1 systemctl is-active --quiet l-echo
    soon eval 'on h1 systemctl show --value --property Environment l-echo | grep -q "WORD=$word"'
    runs=$(on h1 systemctl show --value --property MainPID l-echo)
    on h1 grep -q "WORD=$word" "/proc/$runs/environ"
done
# The socket alone changes while its service runs.
switch <<MODEL
  h1/echo:
    kind: service
    preferred: down
    content: {unit: l-echo, unit_file: "[Service]\nExecStart=/bin/sleep infinity\nEnvironment=WORD=two\n"}
  h1/socket:
    kind: service
    transitions: [{from: down, to: up, needs: [h1/echo@down]}]
    content: {unit: l-echo.socket, enabled: true, unit_file: "[Socket]\nListenStream=127.0.0.1:7314\n[Install]\nWantedBy=sockets.target\n"}
MODEL
on h1 bash -c 'exec 3<>/dev/tcp/127.0.0.1/7314'
soon on h1 systemctl is-active --quiet l-echo
switch <<< ""
soon eval '! on h1 systemctl is-active --quiet l-echo'
[ -z "$(on h1 pgrep -f "sleep infinity" | grep -x "$runs" || true)" ]

step "a socket that ran before is back when it leaves while its service runs"
printf '[Service]\nExecStart=/bin/sleep infinity\n' | put h1 /etc/systemd/system/l-pk.service
printf '[Socket]\nListenStream=127.0.0.1:7315\n' | put h1 /etc/systemd/system/l-pk.socket
on h1 bash -c 'systemctl daemon-reload; systemctl start l-pk.socket'
switch <<< '  h1/socket: {kind: service, content: {unit: l-pk.socket, drop_ins: {own.conf: "[Socket]\nBacklog=7\n"}}}'
on h1 bash -c 'exec 3<>/dev/tcp/127.0.0.1/7315'
soon on h1 systemctl is-active --quiet l-pk.service
switch <<< ""
on h1 systemctl is-active --quiet l-pk.socket
on h1 bash -c 'systemctl stop l-pk.socket l-pk.service; systemctl start l-pk.service'
# A service that ran by itself, without its socket, runs afterwards as well.
switch <<< '  h1/socket: {kind: service, content: {unit: l-pk.socket}}'
on h1 systemctl is-active --quiet l-pk.socket l-pk.service
switch <<< ""
on h1 systemctl is-active --quiet l-pk.service
fails on h1 systemctl is-active --quiet l-pk.socket
on h1 bash -c 'systemctl stop l-pk.socket l-pk.service; rm /etc/systemd/system/l-pk.*; systemctl daemon-reload'

step "a socket and its service that are both up, with the file of the service in a file tree"
for port in 7312 7313; do
    switch <<MODEL
  h1/files: {kind: file-tree, content: {files: {/etc/systemd/system/l-both.service: {content: "[Service]\nExecStart=/bin/sleep 1000\n"}}}}
  h1/socket: {kind: service, requires: [files], content: {unit: l-both.socket, unit_file: "[Socket]\nListenStream=127.0.0.1:$port\n"}}
  h1/both: {kind: service, requires: [socket], restarts_on: [files], content: {unit: l-both}}
MODEL
    on h1 systemctl is-active --quiet l-both.socket l-both.service
    on h1 systemctl show --value --property Listen l-both.socket | grep -q ":$port "
done
switch <<< ""

step "a switch ends with the last that is put back, also of a unit that is to be down"
on h1 systemctl enable l-plain 2>/dev/null
links=$(etc)
switch <<< '  h1/plain: {kind: service, preferred: down, content: {unit: l-plain, enabled: false}}'
is_enabled l-plain disabled
on h1 mkdir -p /etc/systemd/system/multi-user.target.wants/l-plain.service
generate <<< ""
fails on h1 cobctl switch "$generation" --wait 30s
status_says "h1/plain"
on h1 rmdir /etc/systemd/system/multi-user.target.wants/l-plain.service
on h1 cobctl retry h1/plain >/dev/null
soon on h1 cobctl status
is_enabled l-plain enabled
[ "$(etc)" = "$links" ] || { diff <(echo "$links") <(etc) >&2; false; }
switch <<< '  h1/plain: {kind: service, preferred: down, content: {unit: l-plain, enabled: false}}'
switch <<< ""
# At once, and not a moment later.
is_enabled l-plain enabled
on h1 systemctl disable l-plain 2>/dev/null

step "what is left to be put back touches nothing of a change object that is back"
on h1 rm -f /run/l-cannot
printf '[Service]\nExecStartPre=/bin/sh -c "! test -e /run/l-cannot"\nExecStart=/bin/sleep 1111\n' | put h1 /run/systemd/system/l-back.service
on h1 sh -c 'systemctl daemon-reload; systemctl start l-back'
back='  h1/back: {kind: service, content: {unit: l-back, unit_file: "[Service]\nExecStart=/bin/sleep 2222\n"}}'
switch <<< "$back"
on h1 touch /run/l-cannot
generate <<< ""
fails on h1 cobctl switch "$generation" --wait 30s
status_says "ExecStartPre= ended with exit status 1"
switch <<< "$back"
main=$(on h1 systemctl show --value --property MainPID l-back)
sleep 9
[ "$(on h1 systemctl show --value --property MainPID l-back)" = "$main" ]
on h1 rm /run/l-cannot
switch <<< ""
on h1 systemctl is-active l-back >/dev/null
on h1 sh -c 'systemctl stop l-back; rm /run/systemd/system/l-back.service; systemctl daemon-reload'

step "what systemd has started with the new configuration after a loss of power is not started once more"
conf() {
    cat <<MODEL
  h1/conf: {kind: file-tree, content: {files: {/etc/l-conf: {content: "$1\n"}}}}
  h1/power:
    kind: service
    restarts_on: [conf]
    content: {unit: l-power, enabled: true, unit_file: "[Service]\nType=exec\nExecStartPre=/bin/sleep $2\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n"}
MODEL
}
switch < <(conf one 0)
generate < <(conf two 6)
on h1 cobctl switch "$generation" >/dev/null
soon eval '[ "$(on h1 systemctl show --value --property SubState l-power)" = start-pre ]'
bed power-off h1
bed power-on h1
soon on h1 cobctl status
run=$(on h1 systemctl show --value --property InvocationID l-power)
on h1 cobctl check >/dev/null 2>&1 || true
soon on h1 cobctl status
[ "$(on h1 systemctl show --value --property InvocationID l-power)" = "$run" ]
[ "$(on h1 journalctl --quiet --boot --output=cat --unit=l-power | grep -c '^Started ')" = 1 ]

switch <<< ""
on h1 rm -f /etc/l-conf

step "a package can't start a service that is to be masked until it is configured"
tree=$(mktemp -d)
mkdir -p "$tree/p"/{DEBIAN,lib/systemd/system} "$tree/repo"
printf 'Package: l-eager\nVersion: 1\nArchitecture: all\nMaintainer: nobody <nobody@example.org>\nDescription: starts itself\n' > "$tree/p/DEBIAN/control"
printf '[Service]\nExecStart=/bin/sh -c "cat /etc/l-eager.conf >> /run/l-eager; exec sleep infinity"\n[Install]\nWantedBy=multi-user.target\n' > "$tree/p/lib/systemd/system/l-eager.service"
printf '#!/bin/sh\nset -e\nsystemctl daemon-reload\ndeb-systemd-invoke start l-eager.service >/dev/null || true\n' > "$tree/p/DEBIAN/postinst"
printf '#!/bin/sh\nset -e\n[ "$1" != remove ] || deb-systemd-invoke stop l-eager.service >/dev/null || true\n' > "$tree/p/DEBIAN/prerm"
chmod 755 "$tree"/p/DEBIAN/p*
dpkg-deb --build --root-owner-group -Zgzip "$tree/p" "$tree/repo/l-eager_1_all.deb" >/dev/null
{
    dpkg-deb --field "$tree/repo/l-eager_1_all.deb"
    echo "Filename: ./l-eager_1_all.deb"
    echo "Size: $(stat -c %s "$tree/repo/l-eager_1_all.deb")"
    echo "SHA256: $(sha256sum < "$tree/repo/l-eager_1_all.deb" | cut -d' ' -f1)"
} > "$tree/repo/Packages"
tar -C "$tree/repo" -c . | on h1 sh -c 'mkdir -p /srv/l-eager && tar -C /srv/l-eager -x'
rm -rf "$tree"
before=$(etc)
switch <<'MODEL'
  h1/pkg: {kind: package, content: {name: l-eager, repository: /srv/l-eager, trusted: true}}
  h1/eager-conf: {kind: file-tree, requires: [pkg], content: {files: {/etc/l-eager.conf: {content: "configured\n"}}}}
  h1/eager: {kind: service, requires: [eager-conf], content: {unit: l-eager, mask: true, enabled: true}}
MODEL
on h1 systemctl is-active l-eager >/dev/null
soon eval '[ "$(on h1 cat /run/l-eager)" = configured ]'
switch <<< ""
[ "$(etc)" = "$before" ] || { diff <(echo "$before") <(etc) >&2; false; }

step "the daemon does nothing to its own unit, whatever that is called"
printf 'hosts:\n  h1: {}\ncobs:\n  h1/cobd: {kind: service, content: {unit: cobd}}\n' | put h1 /srv/own/model.yaml
fails_with "this is the daemon itself" on h1 cobgen check /srv/own
on h1 sh -c 'ln -s /usr/lib/systemd/system/cobd.service /etc/systemd/system/by-another-name.service; systemctl daemon-reload'
generate <<'MODEL'
  h1/cobd: {kind: service, content: {unit: by-another-name, drop_ins: {a.conf: "[Service]\nWatchdogSec=90\n"}}}
MODEL
main=$(unit h1 MainPID)
on h1 cobctl switch "$generation" >/dev/null
soon status_says "is the daemon's own"
switch <<< ""
on h1 cobctl status >/dev/null
[ "$(unit h1 MainPID)" = "$main" ]
on h1 sh -c 'rm /etc/systemd/system/by-another-name.service; systemctl daemon-reload'

step "a host without a bus says what to do"
generate <<'MODEL'
  h1/demo: {kind: service, content: {unit: demo}}
MODEL
on h1 systemctl stop dbus.socket dbus.service 2>/dev/null
on h1 cobctl switch "$generation" >/dev/null
soon status_says "systemd can't be spoken to"
on h1 systemctl start dbus.socket
soon on h1 cobctl status
switch <<< ""

step "with \`on_remove: keep\` all stays as it is"
switch <<'MODEL'
  h1/demo: {kind: service, on_remove: keep, content: {unit: demo, drop_ins: {k.conf: "[Service]\nEnvironment=COLOUR=kept\n"}}}
MODEL
main=$(demo MainPID)
switch <<< ""
on h1 systemctl restart cobd
soon on h1 cobctl status
has_colour kept
[ "$(demo MainPID)" = "$main" ]
on h1 test -e /etc/systemd/system/demo.service.d/k.conf

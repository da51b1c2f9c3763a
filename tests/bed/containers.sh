# Sourced by run.sh, with `program`: containers of a real podman or docker on real hosts. Images come by their digest
# from a registry on h1. A change interrupts only once the new image is there, health decides what is up, secrets stay
# in memory, a person's stop is noticed, a container is there after a power failure, and nothing of it stays; also with
# daemons and actions that are killed again and again.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"
# shellcheck source=tests/bed/podman.sh
source "$here/$program.sh"

kills=${COB_BED_KILLS:-12}

for needed in $(runtime_needs) /usr/bin/docker-registry /usr/bin/busybox; do
    on h1 test -x $needed || { echo "skipped: containers of $program, for the hosts lack $needed"; return 0; }
done
if on h1 ldd /usr/bin/busybox >/dev/null 2>&1; then
    echo "skipped: containers of $program, for busybox needs libraries (package busybox-static)"
    return 0
fi

# A container in a container needs control groups that can be written.
hold_containers() { # HOST
    # A boot makes them again: a unit of the host opens them before all containers.
    put "$1" /etc/systemd/system/bed-containers.service <<'UNIT'
[Unit]
DefaultDependencies=no
Before=basic.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for place in /proc/sys /sys/fs/cgroup/*/; do mount -o remount,bind,rw $place || true; done'
[Install]
WantedBy=sysinit.target
UNIT
    on "$1" sh -c 'systemctl daemon-reload; systemctl enable --now bed-containers' 2>/dev/null
    hold_runtime "$1" "$low"
}
make_image() { # TEXT: prints its digest in the registry
    on h1 sh -c 'rm -rf /run/image; mkdir -p /run/image/bin /run/image/www /run/image/data /run/image/tmp
        cp /usr/bin/busybox /run/image/bin/busybox
        for name in sh httpd wget cat env sleep test touch id; do ln -s busybox /run/image/bin/$name; done
        echo "$1" > /run/image/www/index.html
        tar -C /run/image -c . | '"$import_image"' --change "CMD [\"/bin/httpd\", \"-f\", \"-p\", \"80\", \"-v\", \"-h\", \"/www\"]" - "h1:5000/web:$1" >/dev/null' sh "$1"
    push_image "h1:5000/web:$1"
}
start_registry() { on h1 systemd-run --quiet --unit=bed-registry docker-registry serve /etc/docker/registry/bed.yml; }

step "containers of $program: a registry with two images, and hosts that can run them"
why=""
for low in crun runc; do
    low=$(on h1 sh -c "command -v $low") || continue
    hold_containers h1
    on h1 sh -c 'rm -rf /run/try; mkdir -p /run/try/bin; cp /usr/bin/busybox /run/try/bin/true; tar -C /run/try -c . | '"$import_image"' - localhost/try:1 >/dev/null'
    ! why=$(on h1 $program run --rm -p 127.0.0.1:5999:80 localhost/try:1 /bin/true 2>&1) || break
    low=""
done
if [ -z "$low" ]; then
    echo "skipped: containers, for $program can run none in these hosts: $(tail -n 1 <<< "$why")"
    return 0
fi
hold_containers h2
on h1 mkdir -p /etc/docker/registry
put h1 /etc/docker/registry/bed.yml <<'CONFIG'
version: 0.1
storage: {filesystem: {rootdirectory: /var/lib/bed-registry}, delete: {enabled: true}}
http: {addr: "10.77.0.1:5000"}
CONFIG
start_registry
soon on h1 timeout 2 bash -c 'exec 3<>/dev/tcp/10.77.0.1/5000'
one=$(make_image one)
two=$(make_image two)
grep -q '^sha256:' <<< "$one" && grep -q '^sha256:' <<< "$two"
on h1 sh -c "umask 077; echo 'bed word 4711' > $site/word"
on h2 sh -c 'mkdir -p /srv/shown && echo shown > /srv/shown/page'

containers_model() { # DIGEST [MORE]
    cat <<MODEL
secrets: {word: {file: word}}
services:
  web:
    cobs:
      app:
        kind: container
        content:
          image: h1:5000/web@$1
          publish: ["10.77.0.2:8080:80"]
          volumes: ["/srv/shown:/www/shown:ro", "bed-data:/data"]
          networks: [bed-front]
          env: {COLOUR: "dark red", WORD: "{{ secret('word') }}"}
          memory: 64M
          grace: 1s
          cpus: 0.5
          read_only: true
          health: {command: [/bin/wget, -q, -O, /dev/null, "http://127.0.0.1/"], interval: 2s, retries: 2}
          ${2:-timeout: 10m}
      plain:
        kind: container
        content: {image: "h1:5000/web@$1", name: bed-plain, grace: 1s, publish: ["10.77.0.2:8081:80"], volumes: ["bed-lost:/lost"], remove_volumes: true}
clusters: {bed: {nodes: [h2], services: [web]}}
MODEL
}
set_containers() { # the model, from standard input, is made and published
    put h1 $site/containers.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h2/nothing: {kind: noop}}'; }
page() { on h3 timeout 5 wget -q -O - "http://10.77.0.2:$1/${2:-}" 2>/dev/null; }
shows() { [ "$(page "$1" "${3:-}")" = "$2" ]; }
both_show() { shows 8080 "$1" && shows 8081 "$1"; }
pod() { on h2 /usr/bin/$program "$@"; }
app=web-app
is_gone() { [ "$(things)" = "$things_before" ] || { diff <(echo "$things_before") <(things) >&2; return 1; }; }
diagnose() { on h2 sh -c "$program"' ps --all; journalctl --no-pager --lines=60 --unit="container-*"'; }
# A container of somebody else, which stays as it is.
on h2 sh -c "$program pull --quiet h1:5000/web@$one >/dev/null; $program run --detach --name others h1:5000/web@$one >/dev/null; $program volume create others >/dev/null"
pod image rm --force "h1:5000/web@$two" >/dev/null 2>&1 || true
list_before
things_before=$(things)

step "containers start from images by their digest, with ports, volumes, a network, limits and a secret"
set_containers < <(containers_model "$one")
reach_cluster
both_show one
shows 8080 shown shown/page
# A person sees a usual container.
is_healthy() { [ "$(pod inspect --format '{{.State.Health.Status}}' "$app")" = healthy ]; }
soon is_healthy
[ "$(pod inspect --format '{{.HostConfig.Memory}} {{.HostConfig.ReadonlyRootfs}}' "$app")" = "67108864 true" ]
[ "$(pod exec "$app" /bin/sh -c 'echo "$COLOUR, $WORD"')" = "dark red, bed word 4711" ]
# The secret is neither in the unit, nor in words of processes, nor readable for users.
fails on h2 grep -rq 4711 /etc
fails on h2 sh -c 'cat /proc/[0-9]*/cmdline | grep -aq "bed [w]ord"'
[ "$(on h2 sh -c 'stat -c "%a %U" /dev/shm/cob-*/containers/*/env-*; stat -c %a /dev/shm/cob-*')" = "$(printf '600 root\n700')" ]
soon says "response:200" on h2 cobctl logs h2/web/app

step "a check changes nothing, and the same generation starts nothing again"
began=$(pod inspect --format '{{.State.StartedAt}}' "$app")
ctl check >/dev/null
ctl status >/dev/null
[ "$(pod inspect --format '{{.State.StartedAt}}' "$app")" = "$began" ]

step "what a person stops, kills or removes comes back"
is_back() { both_show one && ctl status; }
for wrong in "${wrongs[@]}"; do
    on h2 sh -c "$wrong" >/dev/null 2>&1
    patience=120 soon is_back
done
# This person's own container is none of ours.
pod start others >/dev/null
# An edit of the unit file is drift, too.
on h2 sh -c "sed -i 's/8081/8082/' /etc/systemd/system/container-bed-plain.service; systemctl daemon-reload"
is_repaired() { ctl check >/dev/null 2>&1; fails on h2 grep -q 8082 /etc/systemd/system/container-bed-plain.service && is_back; }
patience=120 soon is_repaired

step "an image that can't be pulled stops no container"
on h1 systemctl stop bed-registry
began=$(pod inspect --format '{{.State.StartedAt}}' "$app")
set_containers < <(containers_model "$two")
ctl switch $cluster_generation --wait 20s >/dev/null 2>&1 || true
patience=120 soon ctl_status_says "$program pull"
both_show one
[ "$(pod inspect --format '{{.State.StartedAt}}' "$app")" = "$began" ]
start_registry
soon on h1 timeout 2 bash -c 'exec 3<>/dev/tcp/10.77.0.1/5000'
set_containers < <(containers_model "$two" "retries: 5")
reach_cluster
both_show two

step "a container that is not healthy is not up, and the switch rolls back"
good=$cluster_generation
set_containers < <(containers_model "$one" "timeout: 20s" | sed 's,"http://127.0.0.1/",http://127.0.0.1/missing,')
ctl switch $cluster_generation --on-failure rollback --wait 3m >/dev/null 2>&1 || true
patience=180 soon ctl_status_says "has rolled back"
patience=180 soon both_show two
patience=180 soon ctl status

step "a container that becomes unhealthy is killed, and started again"
set_containers < <(containers_model "$two" "retries: 4" | sed '/read_only/d')
reach_cluster
began=$(pod inspect --format '{{.State.StartedAt}}' "$app")
pod exec "$app" /bin/sh -c 'busybox=/bin/busybox; $busybox rm /www/index.html'
is_new() { [ "$(pod inspect --format '{{.State.StartedAt}}' "$app" 2>/dev/null)" != "$began" ] && both_show two; }
patience=120 soon is_new
patience=120 soon ctl status
play_apart

step "after a power failure a container is there before the daemon; one with a secret waits for it"
on h2 systemctl disable cobd 2>/dev/null
bed power-off h2
forget_networks "$name-h2"
bed power-on h2
patience=120 soon shows 8081 two
fails shows 8080 two
on h2 systemctl enable --now cobd 2>/dev/null
patience=180 soon ctl status
both_show two
[ "$(pod exec "$app" /bin/sh -c 'echo $WORD')" = "bed word 4711" ]

step "the containers leave: units, networks and the volume to remove are gone, the other volume stays"
pod start others >/dev/null
pod exec "$app" /bin/touch /data/kept
set_containers < <(nothing)
reach_cluster
[ "$(pod volume ls --quiet | sort | xargs)" = "bed-data others" ]
on h2 sh -c 'test -e "$('"$program"' volume inspect --format "{{.Mountpoint}}" bed-data)/kept"'
pod volume rm bed-data >/dev/null
is_gone
is_as_before
fails on h2 sh -c 'ls /dev/shm/cob-*/containers/*/env-*'

step "a host without podman and docker refuses the container, and names the packages"
for away in podman docker; do
    on h3 sh -c "[ ! -e /usr/bin/$away ] || mv /usr/bin/$away /usr/bin/$away-away"
done
set_containers <<MODEL
cobs: {h3/web: {kind: container, content: {image: "h1:5000/web@$one"}}}
MODEL
fails_with "install the package \`podman\` or \`docker.io\`" ctl switch $cluster_generation --wait 1m
for away in podman docker; do
    on h3 sh -c "[ ! -e /usr/bin/$away-away ] || mv /usr/bin/$away-away /usr/bin/$away"
done

step "the daemon of the host is killed $kills times while containers come, change and go"
RANDOM=13
permit_many_starts h2
killed=0
round=0
containers_of_round() {
    case $((round % 3)) in
    1) containers_model "$one" "retries: 6" ;;
    2) containers_model "$two" "retries: 6" ;;
    *) nothing ;;
    esac
}
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    set_containers < <(containers_of_round)
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "$((RANDOM % 2)).$((RANDOM % 10))"
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    patience=180 soon ctl status
    case $((round % 3)) in
    1) both_show one ;;
    2) both_show two ;;
    *) pod volume rm --force bed-data >/dev/null; is_gone && is_as_before ;;
    esac
done
echo "       $killed kills in $round switches"
set_containers < <(nothing)
reach_cluster
limit_starts h2
pod volume rm --force bed-data >/dev/null
is_gone
is_as_before

step "containers keep the contract of kinds, and such as break it are found"
tried() { # COLOUR
    printf '{"image": "h1:5000/web@%s", "name": "tried", "env": {"COLOUR": "%s"}, "settle": "100ms", "grace": "1s"}' "$one" "$1"
}
try_container() {
    on h2 cobctl test-kind container --content "$(tried red)" --watch /etc/systemd --watch /srv/shown "$@"
}
# Otherwise systemd starts it again at once.
put h2 /run/systemd/system/container-tried.service.d/once.conf <<< '[Service]
Restart=no'
said=$(try_container --other "$(tried blue)" --kills 2 --arrange stale='systemctl disable container-tried' \
    --arrange failed="$program kill tried; until systemctl is-failed container-tried; do sleep 0.1; done") &&
    ! grep "not tried" <<< "$said" || { echo "$said" >&2; false; }
echo "       $(grep -c '^✓' <<< "$said") of $(grep -c '^[✓✗?]' <<< "$said") hold"
put h2 /usr/lib/systemd/system/container-tried.service.d/planted.conf <<< '[Service]
ExecStartPost=/bin/touch /srv/shown/left'
on h2 systemctl daemon-reload
! said=$(try_container --kills 0) && grep -F -A 1 '✗' <<< "$said" | grep -F "the reverse transition restores the first state" >/dev/null ||
    { echo "$said" >&2; false; }
on h2 sh -c 'rm -r /usr/lib/systemd/system/container-tried.service.d /run/systemd/system/container-tried.service.d /srv/shown; systemctl daemon-reload'

pod kill others >/dev/null
pod rm --force others >/dev/null
for host in h1 h2; do
    let_go_of_runtime $host
    on $host sh -c 'systemctl disable --now bed-containers 2>/dev/null; rm -f /etc/systemd/system/bed-containers.service; systemctl daemon-reload'
done
on h1 sh -c "systemctl stop bed-registry; rm -rf /etc/docker/registry/bed.yml /var/lib/bed-registry $site/word"
on h1 rm $site/containers.yaml
switch_cluster
unset -f diagnose

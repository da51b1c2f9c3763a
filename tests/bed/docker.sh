# Sourced by containers.sh: what it needs of docker. The hosts with containers have no podman: they take docker by
# themselves.

runtime_needs() { # the programs without which it can't be played
    echo /usr/bin/docker /usr/sbin/dockerd /usr/bin/containerd
}

# What a container in a container needs: a disk without overlays, and no keyring.
hold_runtime() { # HOST LOW
    put "$1" /usr/local/bin/bed-runtime <<RUNTIME
#!/bin/bash
words=()
for word; do
    words+=("\$word")
    [ "\$word" != create ] || words+=(--no-new-keyring)
done
exec $2 "\${words[@]}"
RUNTIME
    on "$1" mkdir -p /etc/docker
    put "$1" /etc/docker/daemon.json <<< '{"storage-driver": "vfs", "insecure-registries": ["h1:5000"],
        "runtimes": {"bed": {"path": "/usr/local/bin/bed-runtime"}}, "default-runtime": "bed"}'
    on "$1" sh -c 'chmod +x /usr/local/bin/bed-runtime; [ ! -e /usr/bin/podman ] || mv /usr/bin/podman /usr/bin/podman-away
        systemctl enable containerd docker docker.socket && systemctl restart docker' 2>/dev/null
}
let_go_of_runtime() { # HOST
    on "$1" sh -c 'docker system prune --all --force --volumes >/dev/null 2>&1; systemctl disable --now docker.socket docker containerd
        rm -rf /etc/docker/daemon.json /var/lib/docker /usr/local/bin/bed-runtime; mv /usr/bin/podman-away /usr/bin/podman' 2>/dev/null
}
# The network namespace of a bed's host outlives its power; the rules and bridges of a real host do not.
forget_networks() { # NETNS
    ip netns exec "$1" sh -c 'nft flush ruleset; for link in $(ls /sys/class/net | grep -E "^(docker0|br-)"); do ip link del $link; done' 2>/dev/null || true
}
import_image='docker import'
push_image() {
    on h1 sh -c 'docker push --quiet "$1" >/dev/null && docker image inspect --format "{{index .RepoDigests 0}}" "$1"' sh "$1" | sed 's/.*@//'
}
things() { # without images
    pod ps --all --format '{{.Names}}'
    pod network ls --format '{{.Name}}' | sort
    pod volume ls --format '{{.Name}}'
}
wrongs=("docker stop --time 0 web-app" "docker rm --force web-app" "docker kill bed-plain" "systemctl stop container-bed-plain"
    'docker stop --time 0 $(docker ps --quiet)' "systemctl kill --signal=KILL container-bed-plain" "systemctl restart docker"
    "systemctl kill --signal=KILL docker" "systemctl stop docker")

play_apart() {
    step "docker: podman that is installed later takes no container over"
    began=$(pod inspect --format '{{.State.StartedAt}}' web-app)
    on h2 cp -a /usr/bin/podman-away /usr/bin/podman
    ctl check >/dev/null
    ctl status >/dev/null
    on h2 systemctl restart cobd
    soon ctl status
    [ "$(pod inspect --format '{{.State.StartedAt}}' web-app)" = "$began" ]
    on h2 rm /usr/bin/podman

    step "docker: without its daemon a start fails, and says so; a missing folder and a container of somebody else, too"
    on h2 sh -c 'systemctl stop docker.socket docker' 2>/dev/null
    on h2 systemctl mask --runtime docker.service docker.socket 2>/dev/null
    ctl check >/dev/null 2>&1 || true
    patience=120 soon ctl_status_says "systemctl start docker"
    on h2 sh -c 'systemctl unmask --runtime docker.service docker.socket; systemctl start docker.socket docker' 2>/dev/null
    # All attempts may be over.
    set_containers < <(containers_model "$two" "retries: 7" | sed '/read_only/d')
    reach_cluster
    both_show two
    set_containers < <(containers_model "$two" "retries: 0" | sed 's,/srv/shown:,/srv/missing:,')
    ctl switch $cluster_generation --on-failure rollback --wait 2m >/dev/null 2>&1 || true
    patience=120 soon ctl_status_says "has rolled back"
    on h2 journalctl --unit=container-web-app | grep -F "the host has no /srv/missing, which the container mounts" >/dev/null
    fails on h2 test -e /srv/missing
    set_containers < <(containers_model "$two" "retries: 0" | sed 's,name: bed-plain,name: others,')
    ctl switch $cluster_generation --on-failure rollback --wait 2m >/dev/null 2>&1 || true
    patience=120 soon ctl_status_says "has rolled back"
    patience=120 soon ctl status
    both_show two
    [ "$(pod inspect --format '{{index .Config.Labels "cob.unit"}}' others)" = "" ]

    step "docker: two networks of a container, and a list as entry point"
    set_containers < <(containers_model "$two" 'entrypoint: [/bin/httpd, -f, -p, "80", -v, -h, /www]' | sed 's/networks: \[bed-front\]/networks: [bed-front, bed-back]/')
    reach_cluster
    both_show two
    [ "$(pod inspect --format '{{len .NetworkSettings.Networks}}' web-app)" = 2 ]
}

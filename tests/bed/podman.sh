# Sourced by containers.sh: what it needs of podman.

runtime_needs() { # the programs without which it can't be played
    echo /usr/bin/podman
}

# What a container in a container needs: a disk without overlays. A machine may lack the right to raise limits or to
# make keyrings, or a runtime may not know its control groups.
hold_runtime() { # HOST LOW
    on "$1" sh -c 'rm -rf /var/lib/containers/storage /run/containers /etc/cni; mkdir -p /etc/containers/registries.conf.d
        cd /etc/containers
        printf "[storage]\ndriver = \"vfs\"\nrunroot = \"/run/containers/storage\"\ngraphroot = \"/var/lib/containers/storage\"\n" > storage.conf
        printf "[[registry]]\nlocation = \"h1:5000\"\ninsecure = true\n" > registries.conf.d/bed.conf
        printf "[containers]\ndefault_ulimits = [\"nofile=1024:1024\", \"nproc=4096:4096\"]\nkeyring = false\n[engine]\nruntime = \"%s\"\n" "$(basename "$1")" > containers.conf' sh "$2"
}
let_go_of_runtime() { # HOST
    on "$1" sh -c 'podman image rm --all --force >/dev/null 2>&1; podman volume prune --force >/dev/null 2>&1
        rm -rf /etc/containers/registries.conf.d/bed.conf /etc/containers/storage.conf /etc/containers/containers.conf'
}
# The network namespace of a bed's host outlives its power; the rules and bridges of a real host do not.
forget_networks() { # NETNS
    ip netns exec "$1" sh -c 'nft flush ruleset; for link in $(ls /sys/class/net | grep podman); do ip link del $link; done' 2>/dev/null || true
}
import_image='podman import --quiet'
push_image() { on h1 sh -c 'podman push --quiet --digestfile /run/digest "$1" && cat /run/digest' sh "$1"; }
things() { # without images
    pod ps --all --noheading --format '{{.Names}}'
    pod network ls --noheading --format '{{.Name}}'
    pod volume ls --noheading --format '{{.Name}}'
}
wrongs=("podman stop --time 0 web-app" "podman rm --force --time 0 web-app" "podman kill bed-plain"
    "systemctl stop container-bed-plain" "podman stop --all --time 0")
play_apart() { :; }

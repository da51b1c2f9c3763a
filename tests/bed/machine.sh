# Sourced by storage.sh and links.sh: a virtual machine (vm.sh) as a cluster of one host, with COB as it is installed. The
# script has set `here`, `name` and `stage`, and `looks`, the commands that show what has failed.

patience=${COB_BED_PATIENCE:-240}
if ! why=$("$here/vm.sh" check); then
    echo "skipped: $why"
    exit 0
fi

vm() { COB_BED_PATIENCE=$patience "$here/vm.sh" --name "$name" "$@"; }
on() { vm run "$@"; }

finish() {
    local result=$?
    trap - EXIT
    [ ! -d "${small:-}" ] || rm -r "$small"
    if [ $result != 0 ]; then
        echo "FAILED: ${step:-booting the machine}" >&2
        on sh -c "cobctl status; $looks; journalctl --unit cobd --lines 40 --no-pager" >&2 || true
        if [ "${COB_BED_KEEP:-}" = 1 ]; then
            echo "the machine is left: $here/vm.sh --name $name run bash -c '...'; ... down" >&2
            exit $result
        fi
    fi
    vm down || result=1
    exit $result
}
trap finish EXIT

# shellcheck source=tests/bed/steps.sh
source "$here/steps.sh"
# A look in the emulated machine takes a second by itself.
pause=1
put() { # FILE: its text is the input
    on sh -c "mkdir -p \"\$(dirname '$1')\" && echo $(base64 -w 0) | base64 -d > '$1'"
}
give() { # FOLDER: its files are put over those of the machine
    on sh -c "tar -C '$1' --owner=0 --group=0 -c . | tar -C / -x --no-overwrite-dir --keep-directory-symlink"
}

boot() { # DISKS: a machine with COB
    # The emulated machine reads slowly.
    small=$(mktemp -d -p /var/tmp)
    cp -a "$stage/." "$small"
    ! command -v strip >/dev/null || strip --strip-unneeded "$small"/usr/bin/*
    vm up "$1"
    give "$small"
    rm -r "$small"
    put /etc/cob/cobd.toml <<'CONFIG'
host = "vm"
depot = "/srv/site/depot"
CONFIG
    put /etc/systemd/system/cobd.service.d/often.conf <<'UNIT'
[Unit]
StartLimitIntervalSec=0
UNIT
    on systemctl daemon-reload
}

generation=0
publish() { # the change objects, from the input
    { printf 'security: loopback-only\nhosts:\n  vm: {address: "tcp://127.0.0.1:7077"}\ncobs:\n'; cat; } | put /srv/site/model.yaml
    on cobgen generate /srv/site --depot /srv/site/depot >/dev/null || return 1
    generation=$(on cobgen log --depot /srv/site/depot --json | sed -n 's/^ *"generation": \([0-9]*\),*$/\1/p' | sort -n | tail -n 1)
}
reach() { on cobctl switch "$generation" --wait 8m >/dev/null 2>&1 || on cobctl status; }
try() { on cobctl switch "$generation" --on-failure hold >/dev/null 2>&1 || true; }
explained() { on sh -c "cobctl explain $1; cobctl output $1" 2>&1 || true; }
says() { grep -qF -- "$2" <<< "$(explained "$1")"; }
nothing() { echo '  vm/nothing: {kind: noop}'; }
etc() {
    on sh -c 'find /etc ! -path "/etc/lvm/*" -printf "%p %y %m %u %g %l\n" | sort
        find /etc -type f ! -path "/etc/lvm/*" -print0 | sort -z | xargs -0 md5sum'
}
is_as_before() { [ "$(etc)" = "$etc_before" ] || { diff <(echo "$etc_before") <(etc) >&2; return 1; }; }

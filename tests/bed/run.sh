#!/usr/bin/env bash
# Tests on three real hosts (bed.sh): COB as it is installed, started by systemd, killed, hung, without
# power, cut off.
#
#   tests/bed/run.sh --stage FOLDER   with the files that `packaging/build.sh stage FOLDER` has put there
#   tests/bed/run.sh --deb FILE       with a package, installed as an administrator does it
#
# With --intruder FILE (cargo build -p cob-tests --bin intruder) behind that also hosts that mean harm.
#
# COB_BED_ONLY="service etcd" plays these scripts alone, COB_BED_NOT="service etcd" all others. Where hosts can't be made it says `skipped: WHY` and ends with 0. BED_NAME names the bed, COB_BED_KEEP=1
# leaves it when something has failed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/bed/begin.sh
source "$here/begin.sh"
intruder=""
if [ "${3:-}" = --intruder ]; then
    intruder=$(realpath "${4:?--intruder needs a path}")
fi

step "three hosts with systemd"
bed up 3
for host in h1 h2 h3; do
    install_on "$host"
done

wanted() {
    [[ " ${COB_BED_NOT:-} " != *" $1 "* ]] && { [ -z "${COB_BED_ONLY:-}" ] || [[ " $COB_BED_ONLY " = *" $1 "* ]]; }
}

if wanted alone; then
    # shellcheck source=tests/bed/alone.sh
    source "$here/alone.sh"
fi
if wanted service; then
    # shellcheck source=tests/bed/service.sh
    source "$here/service.sh"
fi
if wanted contract; then
    # shellcheck source=tests/bed/contract.sh
    source "$here/contract.sh"
fi
if wanted packages; then
    # shellcheck source=tests/bed/packages.sh
    source "$here/packages.sh"
fi
if wanted settings; then
    # shellcheck source=tests/bed/settings.sh
    source "$here/settings.sh"
fi
if wanted everyday; then
    # shellcheck source=tests/bed/everyday.sh
    source "$here/everyday.sh"
fi
if wanted firewall; then
    # shellcheck source=tests/bed/firewall.sh
    source "$here/firewall.sh"
fi
for program in podman docker; do
    if wanted $program; then
        # shellcheck source=tests/bed/containers.sh
        source "$here/containers.sh"
    fi
done
if wanted certificates; then
    # shellcheck source=tests/bed/certificates.sh
    source "$here/certificates.sh"
fi
if wanted databases; then
    # shellcheck source=tests/bed/databases.sh
    source "$here/databases.sh"
fi
if wanted filesystem; then
    # shellcheck source=tests/bed/filesystem.sh
    source "$here/filesystem.sh"
fi
if wanted ha; then
    # shellcheck source=tests/bed/ha.sh
    source "$here/ha.sh"
fi
if wanted ha-cluster; then
    # shellcheck source=tests/bed/ha-cluster.sh
    source "$here/ha-cluster.sh"
fi
if wanted fence; then
    # shellcheck source=tests/bed/fence.sh
    source "$here/fence.sh"
fi
if wanted bmc; then
    # shellcheck source=tests/bed/bmc.sh
    source "$here/bmc.sh"
fi
if wanted network; then
    # shellcheck source=tests/bed/network.sh
    source "$here/network.sh"
fi
if wanted interfaces; then
    # shellcheck source=tests/bed/interfaces.sh
    source "$here/interfaces.sh"
fi
if wanted drift; then
    # shellcheck source=tests/bed/drift.sh
    source "$here/drift.sh"
fi
if wanted drain; then
    # shellcheck source=tests/bed/drain.sh
    source "$here/drain.sh"
fi
if wanted guard; then
    # shellcheck source=tests/bed/guard.sh
    source "$here/guard.sh"
fi
if wanted etcd; then
    # shellcheck source=tests/bed/etcd.sh
    source "$here/etcd.sh"
fi
if wanted postgresql; then
    # shellcheck source=tests/bed/postgresql.sh
    source "$here/postgresql.sh"
fi
# The last of those that share a cluster: the package stays on its hosts.
if wanted upgrade; then
    # shellcheck source=tests/bed/upgrade.sh
    source "$here/upgrade.sh"
fi
if ! wanted together; then
    :
elif on h1 cobd join --help >/dev/null 2>&1 && on h1 cobgen enroll --help >/dev/null 2>&1; then
    # shellcheck source=tests/bed/together.sh
    source "$here/together.sh"
    if [ -n "$intruder" ]; then
        # shellcheck source=tests/bed/hostile.sh
        source "$here/hostile.sh"
    else
        echo "skipped: hosts that mean harm, for there is no --intruder"
    fi
else
    echo "skipped: hosts with identities, for this cobd has no \`join\`"
fi
if ! wanted bootstrap; then
    :
elif on h1 cobctl bootstrap --help >/dev/null 2>&1; then
    # shellcheck source=tests/bed/bootstrap.sh
    source "$here/bootstrap.sh"
else
    echo "skipped: hosts that are installed over ssh, for this cobctl has no \`bootstrap\`"
fi
if wanted cases; then
    # shellcheck source=tests/bed/cases.sh
    source "$here/cases.sh"
fi
step "all is done"

# Sourced by run.sh: the cases that change a host (tests/cases/host), on h1, each with a daemon of its own.

step "cases: inputs that gave wrong results"
bed down
bed up 3
install_on h1
on h1 rm -f /usr/sbin/policy-rc.d
on h1 mkdir -p /srv/cases
tar -C "$here/.." -c cases cases.sh | on h1 tar -C /srv/cases -x
on h1 env COB_BIN=/usr/bin /srv/cases/cases.sh --host

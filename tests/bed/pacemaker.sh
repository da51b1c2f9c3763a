# Sourced by scripts that need a Pacemaker cluster of the three hosts: it starts here, and ends with `stop_pacemaker`.

start_pacemaker() {
    local host
    for host in h1 h2 h3; do
        put $host /etc/corosync/corosync.conf <<'CONF'
totem {
  version: 2
  cluster_name: bed
  transport: knet
  crypto_cipher: none
  crypto_hash: none
}
nodelist {
  node {
    ring0_addr: 10.77.0.1
    name: h1
    nodeid: 1
  }
  node {
    ring0_addr: 10.77.0.2
    name: h2
    nodeid: 2
  }
  node {
    ring0_addr: 10.77.0.3
    name: h3
    nodeid: 3
  }
}
quorum {
  provider: corosync_votequorum
}
logging {
  to_syslog: yes
}
CONF
        on $host systemctl start corosync pacemaker
    done
    patience=120 soon says 'Online: [ h1 h2 h3 ]' on h1 crm_mon -1
}

stop_pacemaker() {
    local host
    for host in h1 h2 h3; do
        on $host systemctl stop pacemaker corosync
        on $host sh -c 'rm -rf /var/lib/pacemaker/cib/* /var/lib/pacemaker/pengine/* /etc/corosync/corosync.conf'
    done
}

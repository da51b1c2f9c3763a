# Sourced by run.sh: the kinds that administrators use every day, on a real host: each is applied, checked again, disturbed
# by hand, and gone without a trace. Then the same with daemons that are killed again and again.
#
# COB_BED_KILLS says how often (default 12).

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

kills=${COB_BED_KILLS:-12}

on h2 sh -c 'command -v curl >/dev/null && command -v git >/dev/null && test -e /usr/share/zoneinfo/Asia/Tokyo' ||
    { echo "skipped: everyday kinds, for the host lacks curl, git or tzdata"; return 0; }
# Kinds whose programs a host may lack.
declare -A lacks=()
probe() { on h2 sh -c "$2" >/dev/null 2>&1 || { lacks[$1]=1; echo "skipped: $1, for the host lacks $3"; }; }
probe python-env 'python3 -c "import ensurepip, venv"' python3-venv
probe node-packages 'command -v npm' npm
probe augeas 'command -v augtool' augeas-tools
if_has() { [ -n "${lacks[$1]:-}" ] || echo "$2"; }

# A host as an administrator leaves it: a user, files of packages, a service with its settings, a web server.
# Lines of two absent objects that touch return in any order.
on h2 sh -c 'groupadd --system staff2; useradd --create-home --home-dir /srv/olga --shell /bin/sh olga
    printf "Port 22\n#PermitRootLogin yes\nUsePAM yes\n" > /srv/sshd_config
    mkdir -p /srv/old/deep; echo gone > /srv/old/deep/file; chmod 2750 /srv/old/deep; chown olga /srv/old/deep/file
    mkdir -p /srv/www/app-1/bin; echo "echo tool 1.4" > /srv/www/tool
    printf "#!/bin/sh\necho app\n" > /srv/www/app-1/bin/app; chmod 755 /srv/www/app-1/bin/app; ln -s bin/app /srv/www/app-1/run
    tar -C /srv/www --owner=0 --group=0 --mtime=@0 -czf /srv/www/app.tar.gz app-1 && rm -r /srv/www/app-1
    git init --quiet --initial-branch main /srv/code; echo one > /srv/code/file; git -C /srv/code add file
    git -C /srv/code -c user.name=olga -c user.email=olga@example.org commit --quiet -m one; git -C /srv/code tag v1
    useradd --system --create-home --home-dir /srv/otto otto; echo "10.9.9.8 former alias" >> /etc/hosts
    printf "; by hand\n[Journal]\nStorage=auto\nRate=5\n" > /srv/app.ini; printf "a: 1 # by hand\nb:\n  c: 2\n" > /srv/app.yaml
    echo secret > /srv/private; chmod 644 /srv/private; echo 7 > /srv/limit
    for n in 1 2; do printf "#!/bin/sh\necho editor %s\n" $n > /usr/local/bin/ed$n; chmod 755 /usr/local/bin/ed$n; done
    update-alternatives --install /usr/local/bin/ed ed /usr/local/bin/ed1 20 --slave /usr/local/share/ed.1 ed.1 /usr/local/bin/ed1 >/dev/null
    update-alternatives --install /usr/local/bin/ed ed /usr/local/bin/ed2 10 >/dev/null
    printf "#!/bin/sh\necho of the package\n" > /usr/local/bin/packed; chmod 755 /usr/local/bin/packed
    printf "Port 22\nMatch User olga\n  PermitTTY yes\n" > /srv/daemon_config
    echo "bedmail bedmail/mode select Local only" | debconf-set-selections'
# Packages of Python and of Node.js, each with a program.
on h2 python3 - <<'PACKAGES'
import os, zipfile
os.makedirs("/srv/wheels")
with zipfile.ZipFile("/srv/wheels/hello-1.0-py3-none-any.whl", "w") as wheel:
    for name, text in {
        "hello.py": "def main():\n    print('hello from python')\n",
        "hello-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: hello\nVersion: 1.0\n",
        "hello-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "hello-1.0.dist-info/entry_points.txt": "[console_scripts]\nhello = hello:main\n",
        "hello-1.0.dist-info/RECORD": "",
    }.items():
        wheel.writestr(name, text)
os.makedirs("/srv/hello")
for name, text in {
    "package.json": '{"name": "hello", "version": "1.0.0", "bin": "run.js"}',
    "run.js": "#!/usr/bin/env node\nconsole.log('hello from node')\n",
}.items():
    with open("/srv/hello/" + name, "w") as file:
        file.write(text)
PACKAGES
on h2 systemd-run --quiet --unit=web --working-directory=/srv/www python3 -m http.server --bind 127.0.0.1 8099
tool=$(on h2 sha256sum /srv/www/tool | cut -d' ' -f1)
app=$(on h2 sha256sum /srv/www/app.tar.gz | cut -d' ' -f1)
key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPYpPixNPJXX3CwJFYa54lsF31mTcyYk31u/D0yLlVOK olga@laptop"

everyday_model() {
    cat <<MODEL
cobs:
  h2/absent: {kind: absent, content: {path: /srv/old}}
  h2/line: {kind: line, content: {path: /srv/sshd_config, line: "PermitRootLogin no", match: "^#?PermitRootLogin "}}
  h2/line-absent: {kind: line, content: {path: /srv/sshd_config, match: "^UsePAM", absent: true}}
  h2/block: {kind: block, content: {path: /srv/sshd_config, block: "Match User olga\n  X11Forwarding no\n"}}
  h2/exec: {kind: exec, content: {command: "mkdir -p /srv/made && echo made > /srv/made/file", creates: /srv/made/file, undo: "rm -rf /srv/made"}}
  h2/key: {kind: authorized-key, content: {user: olga, key: "$key", options: restrict}}
  h2/zone: {kind: timezone, content: {zone: Asia/Tokyo}}
  h2/editor: {kind: alternative, content: {name: ed, path: /usr/local/bin/ed2}}
  h2/tool: {kind: download, content: {url: "http://127.0.0.1:8099/tool", sha256: $tool, to: /usr/local/bin/tool, mode: "0755"}}
  h2/user: {kind: user, content: {name: tess}}
  h2/job: {kind: cron, content: {schedule: "30 4 * * *", command: /bin/true, name: job}}
  h2/name: {kind: host-entry, content: {address: 10.9.9.9, names: [db]}}
  h2/ini: {kind: config-keys, content: {path: /srv/app.ini, format: ini, set: {Journal.Storage: persistent, Journal.Max: 5M}, absent: [Journal.Rate]}}
  h2/yaml: {kind: config-keys, content: {path: /srv/app.yaml, format: yaml, set: {b.c: 3, b.d: [x, y]}}}
  h2/private: {kind: attributes, content: {path: /srv/private, mode: "0640", owner: olga}}
  h2/app: {kind: archive, content: {url: "http://127.0.0.1:8099/app.tar.gz", sha256: $app, to: /srv/app, strip: 1}}
  h2/code: {kind: git-checkout, content: {repo: /srv/code, ref: v1, path: /srv/checkout}}
$(if_has python-env '  h2/python: {kind: python-env, content: {path: /srv/python, packages: {hello: "1.0"}, find_links: [/srv/wheels], no_index: true}}')
$(if_has node-packages '  h2/node: {kind: node-packages, content: {path: /srv/node, packages: {hello: "file:/srv/hello"}}}')
$(if_has augeas '  h2/daemon: {kind: augeas, content: {path: /srv/daemon_config, lens: Sshd, set: {Port: 2222, X11Forwarding: "no"}, before: Match}}')
  h2/answers: {kind: debconf, content: {package: bedmail, answers: [{question: bedmail/mode, type: select, value: Internet Site}, {question: bedmail/name, type: string, value: example.org}]}}
  h2/diversion: {kind: divert, content: {path: /usr/local/bin/packed}}
  h2/packed: {kind: file-tree, after: [h2/diversion], content: {files: {/usr/local/bin/packed: {content: "#!/bin/sh\necho of the model\n", mode: "0755"}}}}
  h2/export: {kind: nfs-export, content: {path: /srv/www, clients: {10.77.0.0/24: [rw]}}}
  h2/former: {kind: host-entry, content: {names: [former], absent: true}}
  h2/otto: {kind: user, content: {name: otto, absent: true}}
  h2/staff: {kind: group, content: {name: staff2, absent: true}}
  h2/limit: {kind: exec, content: {command: "echo 9 > /srv/limit", unless: "grep -q 9 /srv/limit", save: "cat /srv/limit", undo: 'printf "%s\n" "\$COB_SAVED" > /srv/limit'}}
MODEL
}
set_everyday() { # the model, from standard input, is made and published
    put h1 $site/everyday.yaml
    publish_cluster
}
nothing() { echo 'cobs: {h2/nothing: {kind: noop}}'; }

# What the kinds bring about, as programs of the host see it.
effects() {
    on h2 sh -c 'test ! -e /srv/old && cat /srv/sshd_config /srv/made/file /srv/olga/.ssh/authorized_keys && readlink -f /etc/localtime &&
        /usr/local/bin/ed && /usr/local/bin/tool && stat -c "%a %U" /usr/local/bin/tool /srv/olga/.ssh /srv/olga/.ssh/authorized_keys &&
        getent passwd tess | cut -d: -f1,6,7 && getent hosts db && cat /etc/cron.d/job && cat /srv/app.ini /srv/app.yaml /srv/limit &&
        stat -c "%a %U" /srv/private && /srv/app/run && cat /srv/checkout/file && git -C /srv/checkout status --short &&
        debconf-show bedmail | sort && packed && packed.distrib && cat /etc/exports.d/*.exports /srv/daemon_config &&
        { [ ! -e /srv/python ] || /srv/python/bin/hello; } && { [ ! -e /srv/node ] || /srv/node/node_modules/.bin/hello; } &&
        ! getent passwd otto && ! getent group staff2 && cat /etc/hosts'
}

list_before
# What the listing does not show: the answers, the diversions, and a file of others.
beside() { on h2 sh -c 'debconf-show bedmail | sort; dpkg-divert --list; cat /srv/daemon_config'; }
beside_before=$(beside)
is_gone() { is_as_before && [ "$(beside)" = "$beside_before" ]; }

step "everyday kinds: applied, and a second look changes nothing"
set_everyday < <(everyday_model)
reach_cluster
everyday_effects=$(effects)
grep -q "^PermitRootLogin no$" <<< "$everyday_effects"
grep -q "^restrict ssh-ed25519 " <<< "$everyday_effects"
grep -q "^editor 2$" <<< "$everyday_effects" && grep -q "^tool 1.4$" <<< "$everyday_effects"
shows() { grep -qE -- "$1" <<< "$everyday_effects"; }
[ -n "${lacks[python-env]:-}" ] || shows "^hello from python$"
[ -n "${lacks[node-packages]:-}" ] || shows "^hello from node$"
[ -n "${lacks[augeas]:-}" ] || shows "^Port 2222$"
shows "bedmail/mode: Internet Site" && shows "^of the model$" && shows "^of the package$" && shows "^/srv/www.*10.77.0.0/24"
everyday_listing=$(listing_of h2)
ctl check >/dev/null
[ "$(effects)" = "$everyday_effects" ]
[ "$(listing_of h2)" = "$everyday_listing" ]

step "what a user undoes is drift, and comes back"
on h2 sh -c 'mkdir /srv/old; rm -r /srv/made; sed -i s/^PermitRootLogin.*/PermitRootLogin\ yes/ /srv/sshd_config; echo UsePAM no >> /srv/sshd_config
    sed -i s/^Max=.*/Max=9/ /srv/app.ini; chmod 666 /srv/private; echo 8 > /srv/limit; echo "10.9.9.8 former" >> /etc/hosts
    echo "bedmail bedmail/mode select Local only" | debconf-set-selections; rm /etc/exports.d/*.exports; sed -i s/2222/22/ /srv/daemon_config
    rm -rf /srv/olga/.ssh/authorized_keys /usr/local/bin/tool /srv/python /srv/node; ln -sfn /usr/share/zoneinfo/UTC /etc/localtime; update-alternatives --auto ed 2>/dev/null'
ctl check >/dev/null 2>&1 || true
is_back() { [ "$(effects)" = "$everyday_effects" ]; }
soon is_back
soon ctl status

step "everything leaves, and the host is as it was"
set_everyday < <(nothing)
reach_cluster
is_gone

step "the daemon of the host is killed $kills times while everyday kinds come and go"
# The moment of a kill is drawn from all of a switch; each switch ends as if nothing had happened.
RANDOM=7
permit_many_starts h2
killed=0
round=0
while [ $killed -lt "$kills" ]; do
    round=$((round + 1))
    set_everyday < <(if [ $((round % 2)) = 1 ]; then everyday_model; else nothing; fi)
    ctl switch $cluster_generation --wait 3m >/dev/null 2>&1 &
    switching=$!
    for _ in 1 2 3; do
        sleep "0.$((RANDOM % 7))$((RANDOM % 10))"
        on h2 systemctl kill --signal=KILL cobd 2>/dev/null && killed=$((killed + 1))
    done
    wait $switching || true
    soon ctl status || { ctl status; on h2 journalctl --unit cobd --lines 60 --no-pager; false; }
    if [ $((round % 2)) = 1 ]; then
        [ "$(effects)" = "$everyday_effects" ] || { diff <(echo "$everyday_effects") <(effects) >&2; false; }
        [ "$(listing_of h2)" = "$everyday_listing" ] || { diff <(echo "$everyday_listing") <(listing_of h2) >&2; false; }
    else
        is_gone
    fi
done
if [ $((round % 2)) = 1 ]; then
    set_everyday < <(nothing)
    reach_cluster
    is_gone
fi
echo "       $killed kills in $round switches"
on h2 systemctl stop web
limit_starts h2
on h2 sh -c 'userdel --remove olga 2>/dev/null; userdel --remove otto 2>/dev/null; groupdel staff2; update-alternatives --remove-all ed >/dev/null
    sed -i "/^10.9.9.8 /d" /etc/hosts
    echo PURGE | debconf-communicate bedmail >/dev/null
    rm -rf /srv/daemon_config /usr/local/bin/packed /srv/sshd_config /srv/old /srv/code /srv/app.ini /srv/app.yaml /srv/private /srv/limit /srv/www /srv/wheels /srv/hello /usr/local/bin/ed1 /usr/local/bin/ed2'
on h1 rm $site/everyday.yaml
switch_cluster

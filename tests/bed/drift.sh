# Sourced by run.sh: somebody edits files in /etc of h2 by hand. `heal`, `adopt` and `report` do what they say.

# shellcheck source=tests/bed/cluster.sh
source "$here/cluster.sh"

step "files in /etc of h2, as the model says"
list_before
put h1 $site/shared.conf <<< 'workers 4
log warn
port 80'
put h1 $site/drift.yaml <<'MODEL'
cobs:
  h2/healed:
    kind: file-tree
    content:
      files:
        /etc/healed/a.conf: {content: "one\ntwo\n", mode: "0640", owner: root}
        /etc/healed/whole: {folder: true, whole: true}
        /etc/healed/link: {link: a.conf}
  h2/adopted:
    kind: file-tree
    content: {on_drift: adopt, files: {/etc/adopted/shared.conf: {from: ./shared.conf}}}
  h2/reported:
    kind: file-tree
    content: {on_drift: report, files: {/etc/reported/a.conf: {content: "one\ntwo\n"}}}
MODEL
switch_cluster
drifts_of() { ctl history --cob "$1" | grep -c ' drift '; }
has_drifted() { [ "$(drifts_of "$1")" -ge "$2" ]; }
differs() { # COB WORDS: of it the host has something else, this among it
    local said
    ! said=$(ctl diff "$1") && grep -qF -- "$2" <<< "$said"
}
put h2 /var/tmp/shown <<'SCRIPT'
#!/bin/sh
# shown FILE COMMAND: does it, and prints how many milliseconds later the status says that others have changed the file.
sh -c "$2"
began=$(date +%s%N)
n=0
until cobctl status 2>&1 | grep -q "$1 was changed by others .*belongs to root"; do
    n=$((n + 1))
    [ $n -lt 500 ] || exit 1
    sleep 0.02
done
echo $((($(date +%s%N) - began) / 1000000))
SCRIPT

step "heal: whatever somebody does, it is as the model says at once, and what he did is kept"
put h2 /var/tmp/by-hand <<'SCRIPT'
#!/bin/sh
# by-hand COMMAND: does it, and prints how many milliseconds later all is as it was.
look() { cd /etc/healed && find . -printf '%p %y %m %u %g %l\n' | sort && cat a.conf; }
was=$(look)
sh -c "$1"
began=$(date +%s%N)
n=0
while [ "$(look 2>&1)" != "$was" ]; do
    n=$((n + 1))
    [ $n -lt 2000 ] || exit 1
    sleep 0.02
done
echo $((($(date +%s%N) - began) / 1000000))
SCRIPT
took=""
for edit in 'echo mine >> a.conf' 'rm a.conf' 'chmod 666 a.conf' 'chown nobody a.conf' 'ln -sf /etc/passwd a.conf' 'rm link; echo x > link' \
    'mkdir whole/x; echo x > whole/x/y'; do
    took+=" $(on h2 sh /var/tmp/by-hand "cd /etc/healed; $edit")"
    # One look may see two of these at once, if it comes late.
    soon has_drifted h2/healed 1
done
echo "       whole again after$took ms"
says '-mine' ctl history --cob h2/healed
found=$(ctl files log h2/healed | awk '/ found / && /a.conf/ { print $1 }' | tail -n 1)
says mine ctl files show h2/healed "$found" /etc/healed/a.conf

step "status shows what somebody has changed, as long as it is not healed"
soon ctl status
on h2 cobctl pause >/dev/null
before_it=$(drifts_of h2/healed)
on h2 sh -c 'echo mine >> /etc/healed/a.conf'
shows_drift() { grep -Eq 'h2/healed +outdated → present' <<< "$(ctl status || true)"; }
soon shows_drift
has_drifted h2/healed $((before_it + 1))
differs h2/healed '-mine'
on h2 cobctl resume >/dev/null
soon ctl status
[ "$(on h2 cat /etc/healed/a.conf)" = 'one
two' ]

step "adopt: it stays, also when the model changes something else, and goes into the model as a patch"
took=$(on h2 sh /var/tmp/shown /etc/adopted/shared.conf "sed -i 's/workers 4/workers 8/' /etc/adopted/shared.conf")
soon differs h2/adopted '-workers 8'
ctl status >/dev/null
on h1 sed -i 's/port 80/port 8080/' $site/shared.conf
switch_cluster
[ "$(on h2 cat /etc/adopted/shared.conf)" = 'workers 8
log warn
port 8080' ]
if on h1 sh -c 'command -v patch' >/dev/null; then patch="patch -s -p1"; else patch="git apply"; fi
ctl files patch h2/adopted | on h1 sh -c "cd $site && $patch"
switch_cluster
ctl diff h2/adopted
says 'workers 8' on h1 cat $site/shared.conf

step "report: it stays until the model changes the file, is shown, and is not lost then"
took+=" and $(on h2 sh /var/tmp/shown /etc/reported/a.conf 'echo mine >> /etc/reported/a.conf')"
echo "       in the status after $took ms"
soon differs h2/reported '-mine'
ctl status >/dev/null
[ "$(on h2 tail -n 1 /etc/reported/a.conf)" = mine ]
on h1 sed -i '/reported/s/one/zero\\none/' $site/drift.yaml
switch_cluster
[ "$(on h2 cat /etc/reported/a.conf)" = 'zero
one
two' ]
found=$(ctl files log h2/reported | awk '/ found / && /a.conf/ { print $1 }' | tail -n 1)
ctl files restore h2/reported "$found" /etc/reported/a.conf >/dev/null
[ "$(on h2 tail -n 1 /etc/reported/a.conf)" = mine ]

step "what somebody has changed does not go unasked; then all is as before"
on h2 sed -i 's/workers 8/workers 16/' /etc/adopted/shared.conf
soon differs h2/adopted '-workers 16'
on h1 sh -c "cd $site && rm drift.yaml shared.conf"
publish_cluster
# The switch ends with it before anything is touched; and goes all the same where that is said.
said=$(ctl switch $cluster_generation 2>&1) && false
case "$said" in *"h2/adopted would be in conflict: /etc/adopted/shared.conf: "*) ;; *) echo "$said"; false ;; esac
ctl status >/dev/null
ctl switch $cluster_generation --despite-conflicts >/dev/null 2>&1
soon ctl_status_says 'conflict in /etc/adopted/shared.conf'
on h2 grep -q 'workers 16' /etc/adopted/shared.conf
ctl resolve h2/adopted --theirs >/dev/null
soon ctl status
is_as_before

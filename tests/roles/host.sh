# Read by run.sh: makes a host as an administrator leaves it, before the first role.
set -eu

# The name and the table of names are the same on both hosts.
echo web1 > /etc/hostname
chmod 644 /etc/hostname
hostname web1
printf '127.0.0.1 localhost\n127.0.1.1 web1\n' > /etc/hosts
printf 'nameserver 9.9.9.9\n' > /etc/resolv.conf

# People, and what they and packages left behind.
useradd --create-home --home-dir /srv/olga --shell /bin/bash olga
mkdir -p /srv/app/old /etc/cron.d /etc/default
printf '[server]\nport = 80\nlevel = debug\n\n[log]\nfile = /var/log/app.log\n' > /etc/app.ini
echo 'left over' > /srv/app/old/file
rm -f /etc/ca-certificates/update.d/jks-keystore
# The hook of a desktop: it starts services after each work of apt.
rm -f /etc/apt/apt.conf.d/20packagekit
update-ca-certificates --fresh >/dev/null 2>&1
echo '30 2 * * * root /usr/local/bin/gone' > /etc/cron.d/old-job
printf '# /etc/fstab\n' > /etc/fstab

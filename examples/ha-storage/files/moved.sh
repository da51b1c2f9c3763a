#!/bin/sh
# Waits until other storage servers have all data of this one, whose disks are marked for removal.
# moved.sh ADDRESS DISKS
ready() { mfscli -H mfsmaster -SHD | grep -F "$1:" | grep -cF 'marked for removal (ready)'; }
until [ "$(ready "$1")" = "$2" ]; do
    sleep 5
done

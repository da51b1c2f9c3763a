#!/bin/sh
. "$(dirname "$0")/lib.sh"
note start
switch_off
note end

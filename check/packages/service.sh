#!/bin/bash
# The .deb in a fresh Debian system that systemd has booted: install, first reading, service, faults,
# upgrade, removal, purge. Runs inside the tree of check/packages/run, without a network:
#   service.sh DIRECTORY     with old/chappe_*.deb, and a newer new/chappe_*.deb
# Prints a line for each check, `ok: …` or `failed: …`.
set -uo pipefail
debs=$1
data=/var/lib/chappe
configuration=/etc/chappe/node.toml
export DEBIAN_FRONTEND=noninteractive

# check TITLE COMMAND...
check() {
    local title=$1
    shift
    if "$@" >/tmp/output 2>&1; then
        echo "ok: $title"
    else
        echo "failed: $title: $*"
        tail -n 12 /tmp/output
        journalctl --unit chappe --no-pager --lines 12 --output cat
    fi
}

# eventually COMMAND...: repeats it for 30 s at most.
eventually() {
    local try
    for try in $(seq 150); do
        "$@" >/dev/null 2>&1 && return
        sleep 0.2
    done
    "$@"
}

property() { systemctl show chappe --property "$1" --value; }
pid() { property MainPID; }
is() { [ "$(property "$1")" = "$2" ] || { echo "$1 is $(property "$1"), not $2"; return 1; }; }
is_another() { [ "$(pid)" != 0 ] && [ "$(pid)" != "$1" ]; }
# The starts of this test are more than the unit permits in its time.
starts() { systemctl reset-failed chappe; systemctl start chappe; }
serves() { curl --silent --fail http://127.0.0.1:8470/health; }
count() { chappe query --format csv 'select count(*) from "lab.room"' | tail -n 1; }
has() { [ "$(count)" = "$1" ] || { count; return 1; }; }
journal() { journalctl --sync; journalctl --unit chappe --no-pager --output cat --since "@$since" | grep --fixed-strings -- "$1"; }
installed() { find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/log -o -path /var/cache \
    -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /root -o -path /var/tmp -o -path "$debs" \) -prune -o -print | grep -v '^/etc/[a-z]*-$' | sort; }
since=$(date +%s)

installed >/var/tmp/before
start=$(date +%s.%N)
check "install" apt-get install --yes --quiet "$debs"/old/chappe_*.deb
echo "time: install $(echo "$(date +%s.%N) $start" | awk '{printf "%.2f", $1 - $2}') s"
check "chappe-lab installs as well" apt-get install --yes --quiet "$debs"/old/chappe-lab_*.deb
check "chappe-lab runs" chappe-lab --version
check "chappe-lab has manual pages" dpkg-query --search /usr/share/man/man1/chappe-lab.1.gz
check "the user exists" id chappe
check "the service waits for the user" is ActiveState inactive
for file in /usr/share/man/man1/chappe-serve.1.gz /usr/share/bash-completion/completions/chappe \
    /usr/share/chappe/node.schema.json /usr/share/doc/chappe/copyright /usr/share/chappe/docs/html/index.html; do
    check "$file" test -s "$file"
done
check "the configuration is valid" chappe config check "$configuration"
check "the unit is valid" bash -c '! systemd-analyze verify --man=no chappe.service 2>&1 | grep -F chappe'
echo "exposure: $(systemd-analyze security --no-pager chappe.service | tail -n 1)"

start=$(date +%s.%N)
runuser -u nobody -- chappe demo --json --run-for 8s >/tmp/demo 2>&1
check "the demo has a first reading" grep -m1 first_element /tmp/demo
echo "time: first reading $(grep -m1 first_element /tmp/demo | sed 's/.*"seconds":\([0-9.]*\).*/\1/') s"

check "the service starts" systemctl enable --now chappe
check "ready when the start returns" serves
check "the guide is served" curl --silent --fail http://127.0.0.1:8470/docs/index.html
check "its state names the address" bash -c 'systemctl show chappe --property StatusText | grep -F http://127.0.0.1:8470'
check "it runs as its user" bash -c '[ "$(ps -o user= -p "$(systemctl show chappe --property MainPID --value)")" = chappe ]'
token=$(cat "$data/data/new-token")
check "a stream is created" chappe stream create lab.room temperature:double --token "$token"
check "a value is written" chappe write lab.room temperature=21.5 --token "$token"

before=$(pid)
kill -KILL "$before"
check "restarted after a kill" eventually is_another "$before"
check "serves after a kill" eventually serves
check "the value survives the kill" has 1

mkdir -p /run/systemd/system/chappe.service.d
printf '[Service]\nWatchdogSec=3\n' >/run/systemd/system/chappe.service.d/watchdog.conf
systemctl daemon-reload
systemctl restart chappe
before=$(pid)
sleep 5 # reason: longer than the watchdog's period
check "notifies the watchdog" is MainPID "$before"
kill -STOP "$before"
check "restarted by the watchdog when it hangs" eventually is_another "$before"
check "serves after the watchdog" eventually serves
rm -r /run/systemd/system/chappe.service.d
systemctl daemon-reload
systemctl restart chappe

since=$(date +%s)
before=$(pid)
check "reload" systemctl reload chappe
cp "$configuration" /var/tmp/node.toml
printf '\n[http]\nlistn = "127.0.0.1:8471"\n' >>"$configuration"
line=$(grep -n listn "$configuration" | cut -d: -f1)
systemctl reload chappe
check "reload reports the line of a fault" eventually journal "$configuration:$line"
check "and the node runs on" is MainPID "$before"

since=$(date +%s)
systemctl restart chappe 2>/dev/null
check "a wrong configuration ends the service" eventually is ActiveState failed
check "with the status that prevents restarts" is ExecMainStatus 78
check "the journal has its line" journal "$configuration:$line"
sleep 5 # reason: longer than RestartSec
check "and it is not restarted" is NRestarts 0
check "the state is still failed" is ActiveState failed
cp /var/tmp/node.toml "$configuration"
check "starts with the repaired configuration" starts

systemctl stop chappe
since=$(date +%s)
python3 -m http.server 8470 --bind 127.0.0.1 >/dev/null 2>&1 &
holder=$!
eventually curl --silent http://127.0.0.1:8470/
starts 2>/dev/null
check "the journal says that the port is in use" eventually journal "127.0.0.1:8470"
kill "$holder"
check "starts once the port is free" eventually serves
systemctl stop chappe
since=$(date +%s)
chown -R root:root "$data/data"
starts 2>/dev/null
check "the journal says that the data belong to another user" eventually journal "$data/data"
systemctl stop chappe
chown -R chappe:chappe "$data/data"
check "starts with its own data" starts

echo '# a comment of the user' >>"$configuration"
before=$(pid)
check "upgrade" apt-get install --yes --quiet "$debs"/new/chappe_*.deb
check "restarted by the upgrade" eventually is_another "$before"
check "serves after the upgrade" eventually serves
check "the value survives the upgrade" has 1
check "the upgrade keeps the configuration" grep -q 'comment of the user' "$configuration"

check "remove" apt-get remove --yes --quiet chappe chappe-lab
check "the program is removed" test ! -e /usr/bin/chappe
check "the service has ended" test -z "$(pgrep -x chappe)"
check "the data are kept" test -d "$data/data"
check "the configuration is kept" test -f "$configuration"
check "install again" apt-get install --yes --quiet "$debs"/new/chappe_*.deb
check "the kept data are served" systemctl start chappe
check "the value survives the removal" has 1
check "purge" apt-get purge --yes --quiet chappe
check "the data are purged" test ! -e "$data"
check "the user is removed" bash -c '! id chappe'
installed >/var/tmp/after
check "nothing is left" diff /var/tmp/before /var/tmp/after
echo "end"

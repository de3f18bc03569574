#!/bin/sh
# A wrapper in shell: the load of the machine each second, as CSV.
#
#     kind = "program"
#     program = ["sh", "load.sh"]
#     output = "elements"
#     format = "csv"
#     [[stream]]
#     name = "machine.load"
#     fields = [{ name = "one", type = "double" }, { name = "five", type = "double" }]
echo one,five
while read -r one five rest < /proc/loadavg; do
    echo "$one,$five" || exit
    sleep 1
done

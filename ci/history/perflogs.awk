# SPDX-License-Identifier: MIT
# Writes performance logs of ReFrame as JSON lines for `busbar history import`:
#   awk -v site=alpha -v partition=gpu -f ci/history/perflogs.awk perflogs/alpha/gpu/*.log >past.jsonl
# Without the variables, site and partition are those of the log. The fields of a reading are NAME_value, NAME_unit and so on.
BEGIN { FS = "|" }
FNR == 1 { fields = 0 }
{ sub(/\r$/, "") }
/(^|\|)job_completion_time(\||$)/ { # a new header begins where the fields change
    fields = NF
    split($0, name, "|")
    next
}
!NF { next }
NF != fields {
    printf "%s:%d: has %d fields, its header %d\n", FILENAME, FNR, NF, fields >"/dev/stderr"
    exit 1
}
{
    split("", row)
    for (i = 1; i <= NF; i++) { row[name[i]] = $i }
    if (row["job_completion_time"] == "" || row["job_completion_time"] == "null") { next } # a job that never ran
    split(row["system"], place, ":")
    check = row["display_name"] == "" ? row["name"] : row["display_name"]
    sub(/ .*/, "", check)
    gsub(/ /, "", row["job_nodelist"])
    for (i = 1; i <= NF; i++) {
        variable = name[i]
        if (sub(/_value$/, "", variable) && is_number($i)) {
            line = pair("time", row["job_completion_time"]) pair("site", site == "" ? place[1] : site)
            line = line pair("partition", partition == "" ? row["partition"] : partition)
            line = line pair("node", row["job_nodelist"]) pair("check", check) pair("delivery", row["environ"])
            line = line pair("metric", variable) pair("unit", row[variable "_unit"])
            reference = row[variable "_ref"]
            if (is_number(reference) && reference != 0) {
                line = line "\"typical\": " reference ", "
                line = line share("low", row[variable "_lower_thres"]) share("high", row[variable "_upper_thres"])
            }
            print "{" line "\"value\": " $i "}"
        }
    }
}
function is_number(text) { return text ~ /^-?[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]+)?$/ }
function share(key, text) { return is_number(text) ? "\"" key "\": " reference * (1 + text) ", " : "" }
function pair(key, text) {
    gsub(/[\\"]/, "\\\\&", text)
    gsub(/[[:cntrl:]]/, " ", text)
    return "\"" key "\": \"" text "\", "
}
